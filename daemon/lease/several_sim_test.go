package lease

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// flight is a copy of a write on its way to one member. Newer content waits for it (FIFO).
type flight struct {
	life int // of the process that submitted it
	next func()
}

// startReadOn reads from all members. At most one of them does not answer in time, another one in every
// read.
func (s *sim) startReadOn(h *simHost, hosts int) {
	took, life := s.delay(), h.life
	view := make([]Record, hosts)
	missing := -1
	if !s.calm {
		missing = s.rng.IntN(len(s.copies)+1) - 1
	}
	for i := range view {
		view[i].Copies = make([]Copy, len(s.copies))
		for k := range s.copies {
			if k == missing {
				continue
			}
			s.after(time.Duration(s.rng.Int64N(int64(took)+1)), func() {
				view[i].Copies[k] = s.copies[k][i]
				view[i].Copies[k].Read = true
			})
		}
	}
	fails := !s.calm && s.rng.IntN(50) == 0
	s.after(took+1, func() {
		s.deliver(h, life, func() []Action {
			if fails {
				return h.m.ReadFailed(s.now)
			}
			return h.m.TableRead(s.now, view)
		})
	})
}

// startWriteOn writes to all members, and returns when a majority has acknowledged it. A copy that is
// on its way when the process ends may land later, on one member at most.
func (s *sim) startWriteOn(h *simHost, c Copy) {
	life := h.life
	var acked []int
	done := false
	fails := !s.calm && s.rng.IntN(50) == 0
	if h.flights == nil {
		h.flights = make([]flight, len(s.copies))
	}
	returned := func() {
		done = true
		s.deliver(h, life, func() []Action {
			if s.cut[c.Incarnation] {
				return slices.Concat(h.m.WriteFailed(s.now), h.m.Lose(s.now, errRefused))
			}
			if fails {
				return h.m.WriteFailed(s.now)
			}
			return h.m.WrittenOn(s.now, slices.Clone(acked))
		})
	}
	late := s.rng.IntN(len(s.copies)) // the member on which a copy may land after its process has ended
	for k := range s.copies {
		submit := func() {
			f := &h.flights[k]
			*f = flight{life: life + 1}
			land := s.pend(h, func(lands bool) {
				if lands && !s.cut[c.Incarnation] {
					s.copies[k][c.ID-1] = c
					s.note(h, "wrote %d.%d %v %d.%d %v on member %d", c.ID, c.Incarnation, c.State, c.Generation, c.Sequence, c.Verdicts, k)
				}
			})
			s.after(s.delay(), func() {
				if life != h.life && k != late {
					return // its process has ended
				}
				land(!fails || s.rng.IntN(2) == 0)
				if acked = append(acked, k); len(acked) == len(s.copies)/2+1 && !done {
					returned()
				}
				if life == h.life {
					next := h.flights[k].next
					h.flights[k] = flight{}
					if next != nil && h.m.Live(s.now) { // LAST-CALL
						next()
					}
				}
			})
		}
		if h.flights[k].life == life+1 {
			h.flights[k].next = submit
			continue
		}
		submit()
	}
}

// TestSimulation_Members runs hosts on three members, each of which may miss any read, and on which
// writes land at different times, in part after their process has ended.
func TestSimulation_Members(t *testing.T) {
	first, runs := uint64(time.Now().UnixNano()), max(1, *simRuns/5) // each takes longer than with one disk
	if *simSeed != 0 {
		first, runs = *simSeed, 1
	}
	var joined, renewed, resumed, declared int
	for seed := first; seed < first+uint64(runs); seed++ {
		s := newSim(seed)
		s.onMembers(3)
		s.wild()
		s.run(20)
		if s.broken != "" {
			t.Fatalf("%s is broken; repeat with -lease.seed=%d\n%s", s.broken, seed, strings.Join(s.log, "\n"))
		}
		joined, renewed, resumed, declared = joined+s.joined, renewed+s.renewed, resumed+s.resumed, declared+s.declared
	}
	require.Positive(t, joined)
	t.Logf("%d runs of 20 leases from seed %d: %d joins, %d renewals, %d resumed, %d deaths reported", runs, first, joined, renewed, resumed, declared)
}

func (s *sim) onMembers(n int) {
	s.copies = make([][]Copy, n)
	for k := range s.copies {
		for _, r := range s.disk {
			s.copies[k] = append(s.copies[k], Copy{HostRecord: r})
		}
	}
}
