package stress

// gate keeps numbers below a bound by the drain rule: once a number reaches the limit, no
// arriving worker enters the doorway until all numbers are back to zero.
//
// Time is divided into eras, in each of which numbers begin at zero. A worker shows its era
// together with its number, in the register that only it writes, and before each doorway reads
// all registers. A number of the limit or above closes an era. A worker that finds such a number,
// or a worker in the next era, goes to that era too. It resets its number to zero, and waits
// until no worker is behind.
//
//   - BOUND: numbers stay below the bound.
//   - DRAIN: no doorway is entered after a look that began when the era was
//     closed.
//
// PROTOCOL.md, "Bounded numbers", has the proofs; explore_test.go takes this code through every
// interleaving.
type gate struct {
	limit   uint64 // the number that closes an era; 0: no gate
	era     uint64 // the registers show it modulo 3
	at      bool   // neither in the doorway nor beyond it
	leaving bool   // after this visit there is no other
}

// reserve returns how far numbers may pass the limit. A worker that has drawn one above it has
// closed the era for itself. It can do that in one doorway only, with two numbers: that of the
// claim and that of the ticket.
func reserve(workers int) uint64 { return 2 * uint64(workers) }

// LeastMaxTicket returns the smallest bound for a number of workers.
func LeastMaxTicket(workers int) uint64 { return reserve(workers) + 1 }

func (g *gate) arrive() action {
	g.at = true
	return action{kind: look}
}

// judge decides at the gate, according to all registers.
func (v *visitor) judge(words []word) action {
	g := &v.gate
	closed := false
	for i, w := range words {
		switch w = v.read(w); {
		case w.gone():
		case v.behind(w):
			return action{kind: poll, of: i, was: words[i]}
		default:
			closed = closed || w.era() != g.era%eras || w.number() >= g.limit
		}
	}
	switch {
	case closed: // also if it leaves: only its number may show that
		g.era++
		v.renew()
		return v.show(word(g.era % eras << eraShift))
	case g.leaving:
		return v.show(goneWord)
	}
	g.at = false
	return v.acquire()
}

// behind reports whether a worker is still in the era before: its number is not back to zero.
func (v *visitor) behind(w word) bool {
	return !w.gone() && (w.era()+1)%eras == v.gate.era%eras
}
