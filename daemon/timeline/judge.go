package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// Finding is a violation, or a possible one.
type Finding struct {
	Kind     FindingKind
	Proven   bool // no clocks explain it
	At       Moment
	Until    Moment
	Lock     int
	Attempts []int // the attempts in it
	Text     string
}

// FindingKind is a kind of finding.
type FindingKind string

// The kinds of findings. The last two are not violations by themselves.
const (
	TwoHolders FindingKind = "two holders" // more holders than allowed, at one time
	TokenBack  FindingKind = "token back"  // a grant has a smaller token than one before it
	TokenTwice FindingKind = "token twice"
	Late       FindingKind = "late"  // a hold outlasted the verdict on its host, or its lease
	Doubt      FindingKind = "doubt" // wrong clocks, or two holders: the journals do not decide
)

// farOff is a difference of clocks that is rare, in us. If only hand-overs in one direction
// indicate such a difference, it may have another cause.
const farOff = 1000 * 1000

// maxFindings bounds the number of kept findings.
const maxFindings = 2000

// phase is the time during which a hold had one mode.
type phase struct {
	attempt    int
	shared     bool
	doubt      bool // the journals do not prove it
	from, till Moment
}

// judge searches for violations.
func (t *Timeline) judge(c *clocks) {
	t.findLeased()
	for lock, holds := range t.holdsByLock() {
		t.judgeOverlaps(c, lock, t.phases(holds))
		t.judgeTokens(c, lock, holds)
	}
	t.judgeLate(c)
	if t.more > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("there are %d findings more than are shown", t.more))
	}
	rank := func(f *Finding) int {
		switch {
		case f.Proven:
			return 0
		case f.Kind == Doubt:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(t.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.At, b.At))
	})
}

// found adds a finding, up to maxFindings.
func (t *Timeline) found(f Finding) {
	if len(t.Findings) >= maxFindings {
		t.more++
		return
	}
	t.Findings = append(t.Findings, f)
}

// phases returns the phases of holds, by time, until their leases may have ended.
func (t *Timeline) phases(holds []int) (all []phase) {
	for _, i := range holds {
		a := &t.Attempts[i]
		end := t.stands(a)
		var add func(p phase)
		add = func(p phase) {
			for _, v := range a.vague {
				if p.from >= v.from && p.from < v.till && !p.shared { // in one of two modes: it violates only where both do
					add(phase{attempt: i, shared: true, from: p.from, till: min(v.till, p.till)})
					p.from = min(v.till, p.till)
				}
			}
			if p.from < a.known { // since then at the latest: the grant is missing
				if a.entered.Kind == events.Resumed {
					p.from = min(a.known, p.till)
				} else if early := (phase{p.attempt, p.shared, true, p.from, min(a.known, p.till)}); early.till > early.from {
					all = append(all, early)
					p.from = early.till
				}
				if p.from == p.till {
					return
				}
			}
			proven := p
			proven.till = min(p.till, end.proven)
			if proven.till > proven.from || p.till == p.from {
				all = append(all, proven)
				p.from = proven.till
			}
			if p.till = min(p.till, end.possible); p.till > p.from {
				p.doubt = true
				all = append(all, p)
			}
		}
		p := phase{attempt: i, shared: a.Shared, from: a.Entered}
		for _, m := range a.Modes {
			p.till = m.At
			add(p)
			p.from, p.shared = m.At, m.Shared
		}
		p.till = max(a.sure, p.from)
		add(p)
	}
	slices.SortStableFunc(all, func(a, b phase) int { return cmp.Compare(a.from, b.from) })
	return all
}

// standing is the time until which a hold excluded others.
type standing struct {
	proven   Moment // for certain
	possible Moment // at the latest: then its host was dead, or had lost its lease
}

// stands returns until when a hold excluded others. A stalled or cut-off host records its hold
// when it runs again, or when it gives up. Other hosts may rightly hold the lock by then, because
// they had declared it dead. Until the host notices, its command is no second holder, but late
// (judgeLate).
func (t *Timeline) stands(a *Attempt) standing {
	s := standing{proven: a.sure, possible: a.sure}
	switch {
	case a.Verdict != Never:
		end := a.Verdict
		// A host that grants other locks for longer than wakes after the verdict was not stalled.
		if first, last := t.grants(a, a.Verdict, a.sure); last != Never && last-first >= wakes {
			end = last
		}
		if s.proven = min(a.sure, end); a.Entered <= end {
			s.possible = s.proven // otherwise, by the host's records, it was granted after the verdict
		}
	case a.Lost != Never || a.waking: // a verdict on it is not known
		if a.Lost != Never {
			s.possible = min(a.sure, a.Lost)
		}
		_, last := t.grants(a, Never, s.possible)
		s.proven = min(s.possible, max(a.Entered, last))
	}
	return s
}

// grants returns the first and last moment in a time at which the host of a hold acted under a
// lease, in that incarnation.
func (t *Timeline) grants(a *Attempt, after, until Moment) (first, last Moment) {
	all := t.leased[life{a.Host, a.Incarnation}]
	from, _ := slices.BinarySearch(all, after+1)
	till, _ := slices.BinarySearch(all, until+1)
	if from >= till {
		return Never, Never
	}
	return all[from], all[till-1]
}

// life is one incarnation of a host.
type life struct {
	host int // index
	of   uint64
}

// findLeased collects the moments at which hosts acted under a lease: drew tickets, granted locks
// or changed modes.
func (t *Timeline) findLeased() {
	t.leased = map[life][]Moment{}
	for i := range t.Attempts {
		a := &t.Attempts[i]
		k := life{a.Host, a.Incarnation}
		all := t.leased[k]
		for _, at := range []Moment{a.Choosing, a.Numbered} {
			if at != Never {
				all = append(all, at)
			}
		}
		if a.entered != nil && a.entered.Kind == events.Enter {
			all = append(all, a.Entered)
		}
		for _, m := range a.Modes {
			if !slices.ContainsFunc(a.vague, func(v span) bool { return v.from == m.At }) {
				all = append(all, m.At)
			}
		}
		t.leased[k] = all
	}
	for _, all := range t.leased {
		slices.Sort(all)
	}
}

// judgeOverlaps goes through the holds by time, with those that still last.
func (t *Timeline) judgeOverlaps(c *clocks, lock int, all []phase) {
	permits := t.Locks[lock].Permits
	var inside []phase
	for _, p := range all {
		inside = slices.DeleteFunc(inside, func(q phase) bool { return q.till <= p.from })
		var writers []phase
		for _, q := range inside {
			switch {
			case q.attempt == p.attempt, q.shared && p.shared:
			case q.shared != p.shared:
				t.overlap(c, lock, []phase{q, p})
			default:
				writers = append(writers, q)
			}
		}
		if permits == 1 {
			for _, q := range writers {
				t.overlap(c, lock, []phase{q, p})
			}
		} else if len(writers) >= permits {
			t.overlap(c, lock, append(writers, p))
		}
		inside = append(inside, p)
	}
}

// overlap judges holds that coincide by the corrected clocks.
func (t *Timeline) overlap(c *clocks, lock int, all []phase) {
	if len(t.Findings) >= maxFindings {
		t.more++
		return
	}
	f := Finding{Kind: TwoHolders, Lock: lock, Proven: true, At: Never, Until: -Never}
	for _, p := range all {
		f.Attempts = append(f.Attempts, p.attempt)
		f.At, f.Until = max(f.At, p.from), min(f.Until, p.till)
		if p.doubt {
			f.Proven, f.Kind = false, Doubt
		}
	}
	for i := range all {
		for k := range i {
			if t.apart(c, &all[k], &all[i]) {
				f.Proven, f.Kind = false, Doubt
			}
		}
	}
	if !f.Proven && int64(f.Until-f.At) <= c.slip {
		return
	}
	for i := len(t.Findings) - 1; i >= 0 && t.Findings[i].Lock == lock; i-- { // the same holds, in another mode, or later
		if old := &t.Findings[i]; (old.Kind == f.Kind || old.Proven) && sameHolds(old.Attempts, f.Attempts) {
			return
		}
	}
	f.Text = t.overlapText(&f)
	t.found(f)
}

func sameHolds(a, b []int) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(i int) bool { return !slices.Contains(b, i) })
}

func (t *Timeline) overlapText(f *Finding) string {
	var who []string
	for _, i := range f.Attempts {
		who = append(who, t.holder(i))
	}
	text := fmt.Sprintf("%s held %s at the same time for %s", strings.Join(who, " and "), printable(t.Locks[f.Lock].Name), length(int64(f.Until-f.At)))
	if p := t.Locks[f.Lock].Permits; p > 1 {
		text += fmt.Sprintf(" (%d may)", p)
	}
	for _, i := range f.Attempts {
		switch a := &t.Attempts[i]; {
		case a.Verdict != Never:
			text += fmt.Sprintf("; %s had been declared dead: only tokens, fencing or a watchdog stop writes of commands that still run there", t.hostName(a.Host))
		case a.Lost != Never:
			text += fmt.Sprintf("; %s had lost its lease", t.hostName(a.Host))
		}
	}
	if !f.Proven {
		text += "; or their clocks disagree by more than the journals show, or one of them was stalled: the journals do not decide"
	}
	return text
}

func (t *Timeline) hostName(i int) string { return printable(t.Hosts[i].Name) }

func (t *Timeline) holder(i int) string {
	a := &t.Attempts[i]
	return fmt.Sprintf("%s (token %s)", t.hostName(a.Host), a.Token)
}

// apart reports whether one of two phases can have ended before the other began, with any
// possible clocks.
func (t *Timeline) apart(c *clocks, p, q *phase) bool {
	a, b := &t.Attempts[p.attempt], &t.Attempts[q.attempt]
	if c.failed[[2]*record{a.exited, b.entered}] || c.failed[[2]*record{b.exited, a.entered}] {
		return false
	}
	before := func(a *Attempt, p *phase, b *Attempt, q *phase) bool {
		return c.possible(a.entered, int64(p.till-a.entered.at)-int64(q.from-b.entered.at), b.entered)
	}
	return before(a, p, b, q) || before(b, q, a, p)
}

// judgeTokens searches for tokens that decrease over time, or that two holds have.
func (t *Timeline) judgeTokens(c *clocks, lock int, holds []int) {
	byToken := map[layout.Ticket]int{}
	var granted []int
	for _, i := range holds {
		a := &t.Attempts[i]
		if a.Token == 0 {
			continue
		}
		if first, ok := byToken[a.Token]; ok && a.entered != t.Attempts[first].entered {
			t.found(Finding{Kind: TokenTwice, Proven: true, At: a.Entered, Until: a.Ended, Lock: lock, Attempts: []int{first, i},
				Text: fmt.Sprintf("%s and %s were granted %s with one token, %s", t.hostName(t.Attempts[first].Host), t.hostName(a.Host),
					printable(t.Locks[lock].Name), a.Token)})
		}
		byToken[a.Token] = i
		granted = append(granted, i)
	}
	slices.SortStableFunc(granted, func(x, y int) int { return cmp.Compare(t.Attempts[x].Entered, t.Attempts[y].Entered) })
	if t.Locks[lock].Permits > 1 {
		t.judgeTokensOfMany(c, lock, granted)
		return
	}
	greatest, writer := -1, -1 // among earlier holds: the greatest of all, and of exclusive ones
	for _, i := range granted {
		a, over := &t.Attempts[i], greatest
		if a.Shared {
			over = writer
		}
		if over >= 0 && t.Attempts[over].Token > a.Token {
			t.tokenBack(c, lock, over, i)
		}
		if greatest < 0 || t.Attempts[greatest].Token < a.Token {
			greatest = i
		}
		if !a.Shared && (writer < 0 || t.Attempts[writer].Token < a.Token) {
			writer = i
		}
	}
}

// judgeTokensOfMany handles several permits. A token is greater than those of the exclusive holds
// that had ended when its ticket was drawn. That may have been for an earlier client of the host,
// which handed the lock over.
func (t *Timeline) judgeTokensOfMany(c *clocks, lock int, granted []int) {
	drawn := map[layout.Ticket]Moment{}
	ticket := func(a *Attempt) layout.Ticket { return a.Token &^ (layout.MaxGrants - 1) }
	for _, i := range granted {
		a := &t.Attempts[i]
		if at, ok := drawn[ticket(a)]; !ok || a.begin() < at {
			drawn[ticket(a)] = a.begin()
		}
	}
	t.drawnForOthers(lock, granted, drawn, ticket)
	ended := slices.Clone(granted)
	slices.SortStableFunc(ended, func(x, y int) int { return cmp.Compare(t.Attempts[x].Ended, t.Attempts[y].Ended) })
	asked := slices.Clone(granted)
	slices.SortStableFunc(asked, func(x, y int) int {
		return cmp.Compare(drawn[ticket(&t.Attempts[x])], drawn[ticket(&t.Attempts[y])])
	})
	greatest, n := -1, 0
	for _, i := range asked {
		a := &t.Attempts[i]
		at := drawn[ticket(a)]
		for ; n < len(ended) && t.Attempts[ended[n]].Ended < at; n++ {
			e := &t.Attempts[ended[n]]
			if !e.Shared && e.exited != nil && (greatest < 0 || t.Attempts[greatest].Token < e.Token) {
				greatest = ended[n]
			}
		}
		if !a.Shared && greatest >= 0 && t.Attempts[greatest].Token > a.Token &&
			!c.possible(a.entered, int64(at-a.entered.at), t.Attempts[greatest].exited) {
			t.tokenBack(c, lock, greatest, i)
		}
	}
}

// drawnForOthers finds tickets that were drawn for a client of the host that gave up, and used
// for the next one.
func (t *Timeline) drawnForOthers(lock int, granted []int, drawn map[layout.Ticket]Moment, ticket func(*Attempt) layout.Ticket) {
	type gaveUp struct{ from, till Moment }
	byHost := map[int][]gaveUp{}
	for i := range t.Attempts {
		if a := &t.Attempts[i]; a.Lock == lock && !a.held() && max(a.Choosing, a.Numbered) != Never {
			byHost[a.Host] = append(byHost[a.Host], gaveUp{a.begin(), a.Ended})
		}
	}
	for _, all := range byHost {
		slices.SortFunc(all, func(x, y gaveUp) int { return cmp.Compare(x.till, y.till) })
	}
	for _, i := range granted {
		a := &t.Attempts[i]
		at := drawn[ticket(a)]
		all := byHost[a.Host]
		k, _ := slices.BinarySearchFunc(all, a.Entered+1, func(g gaveUp, at Moment) int { return cmp.Compare(g.till, at) })
		for k--; k >= 0 && all[k].till >= at; k-- { // each may have used the ticket of the previous one
			at = min(at, all[k].from)
		}
		drawn[ticket(a)] = at
	}
}

// tokenBack adds a finding for a token that decreases. The clocks were corrected by the tokens,
// so clocks do not explain it. Where both hold at the same time there is a finding already.
func (t *Timeline) tokenBack(c *clocks, lock, before, i int) {
	b, a := &t.Attempts[before], &t.Attempts[i]
	if max(b.Entered, b.known) > a.Entered {
		return // one of the grants is missing: their order is unknown
	}
	if !c.same(b.entered, a.entered) && c.possible(a.entered, 0, b.entered) && t.Locks[lock].Permits == 1 {
		return
	}
	for _, f := range t.Findings {
		if (f.Kind == TwoHolders || f.Kind == Doubt) && sameHolds(f.Attempts, []int{before, i}) {
			return
		}
	}
	f := Finding{Kind: TokenBack, Proven: true, At: a.Entered, Until: a.Ended, Lock: lock, Attempts: []int{before, i},
		Text: fmt.Sprintf("%s was granted %s with token %s, after %s held it", t.hostName(a.Host), printable(t.Locks[lock].Name), a.Token, t.holder(before))}
	if a.Verdict != Never && a.Entered > a.Verdict || a.Lost != Never && a.Lost-a.Entered <= wakes {
		f.Kind, f.Proven = Doubt, false
		f.Text += "; or its host was stalled between the grant and the record of it: the journals do not decide"
	}
	t.found(f)
}

// meanwhile returns the holds of a lock with one permit that conflict with a hold that was over
// by then.
func (t *Timeline) meanwhile(holds []int, late int, over Moment) (others []int) {
	a := &t.Attempts[late]
	for _, i := range holds {
		b := &t.Attempts[i]
		if i != late && t.Locks[a.Lock].Permits == 1 && b.Entered < a.sure && b.sure > over && b.Token > a.Token &&
			!(a.sharedNow() && b.Shared) {
			others = append(others, i)
		}
	}
	slices.SortStableFunc(others, func(x, y int) int { return cmp.Compare(t.Attempts[x].Entered, t.Attempts[y].Entered) })
	return others
}

// judgeLate searches for holds that outlasted the verdict on their host, or its lease while
// others held the lock. It also searches for hand-overs that only very wrong clocks explain.
func (t *Timeline) judgeLate(c *clocks) {
	holds := t.holdsByLock()
	for i := range t.Attempts {
		a := &t.Attempts[i]
		if !a.held() {
			continue
		}
		over, why := a.Verdict, "it had been declared dead"
		if over == Never {
			over, why = a.Lost, "its host had lost its lease"
		}
		if over == Never || int64(a.sure-over) <= c.slip {
			continue
		}
		others := t.meanwhile(holds[a.Lock], i, over)
		if a.Verdict == Never && len(others) == 0 {
			continue // stopping takes a moment
		}
		text := fmt.Sprintf("by its journal %s still held %s %s after %s: if its command ran on, only tokens, fencing or a watchdog stopped its writes",
			t.holder(i), printable(t.Locks[a.Lock].Name), length(int64(a.sure-over)), why)
		if len(others) > 0 {
			text += fmt.Sprintf("; meanwhile %s held it", t.holder(others[0]))
			if n := len(others) - 1; n > 0 {
				text += fmt.Sprintf(", and %d after that", n)
			}
		}
		t.found(Finding{Kind: Late, At: over, Until: a.sure, Lock: a.Lock, Attempts: []int{i}, Text: text})
	}
	entered := map[*record]int{}
	for i := range t.Attempts {
		if r := t.Attempts[i].entered; r != nil {
			entered[r] = i
		}
		if r := t.Attempts[i].exited; r != nil {
			entered[r] = i
		}
	}
	for _, o := range t.tokenOrder() {
		by := int64(o.before.raw - o.after.raw)
		// There may be more of a difference: it has no bound in the other direction.
		if by <= farOff || c.same(o.before, o.after) || c.atLeast[o.after.node][o.before.node] != unknown {
			continue
		}
		a, b := entered[o.before], entered[o.after]
		t.found(Finding{Kind: Doubt, At: t.Attempts[b].Entered, Until: t.Attempts[b].Ended, Lock: t.Attempts[b].Lock, Attempts: []int{a, b},
			Text: fmt.Sprintf("by the clocks %s was granted %s %s before %s released it; their tokens are in order, so their clocks disagree by that or more, or both held it at the same time: the journals do not decide",
				t.holder(b), printable(t.Locks[t.Attempts[b].Lock].Name), time.Duration(by)*time.Microsecond, t.holder(a))})
	}
}
