package bakery

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"
)

// search takes a scenario through every interleaving. It remembers states by
// a 128-bit hash, and the graph of moves: at the end, from every state one
// must be reachable in which everybody is done. That is absence of deadlock,
// and of any corner from which only endless polling is left.
type search struct {
	seeds  [2]maphash.Seed
	hashes pile[[2]uint64]
	table  []uint32 // of hashes, open addressing: state + 1
	parent pile[uint32]
	order  pile[uint32] // the states in the order of expansion
	degree pile[uint16] // of each of them: how many edges
	edges  pile[uint32] // where to, in the same order
	done   []uint64     // bits: the states from which a final one can be reached
	buf    []byte
}

// pile is a slice that grows without being copied.
type pile[T any] struct {
	chunks [][]T
	n      int
}

const chunk = 1 << 18

func (p *pile[T]) add(v T) {
	if p.n%chunk == 0 {
		p.chunks = append(p.chunks, make([]T, chunk))
	}
	p.chunks[p.n/chunk][p.n%chunk] = v
	p.n++
}

func (p *pile[T]) at(i int) T { return p.chunks[i/chunk][i%chunk] }

type result struct {
	states int
	cut    int    // states not followed, for their numbers
	fault  string // empty if none
	trace  []string
	took   time.Duration
}

type node struct {
	w  *world
	id uint32
}

func explore(sc scenario) result {
	start := time.Now()
	s := &search{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, table: make([]uint32, 1<<16)}
	root := newWorld(&sc)
	id, _ := s.add(root, 0)
	stack := []node{{root, id}}
	r := result{}
	for len(stack) > 0 && r.fault == "" {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		beyond := n.w.beyond()
		if beyond || n.w.final() {
			s.done[n.id/64] |= 1 << (n.id % 64)
			r.cut += int(bit(beyond))
		}
		before := s.edges.n
		if !beyond {
			n.w.moves(func(c *world, host int, _ string) {
				id, fresh := s.add(c, n.id)
				s.edges.add(id)
				if c.fault != "" && r.fault == "" {
					r.fault, r.trace = c.fault, s.path(&sc, id)
				}
				if fresh {
					stack = append(stack, node{c, id})
				} else {
					c.drop(host)
				}
			})
		}
		s.order.add(n.id)
		s.degree.add(uint16(s.edges.n - before))
		n.w.spare.worlds = append(n.w.spare.worlds, n.w)
	}
	if r.fault == "" {
		if id, stuck := s.stuck(); stuck {
			r.fault, r.trace = "DEADLOCK: from here not everybody can finish", s.path(&sc, id)
		}
	}
	r.states, r.took = s.parent.n, time.Since(start)
	return r
}

func (s *search) hash(w *world) [2]uint64 {
	s.buf = w.key(s.buf[:0])
	return [2]uint64{maphash.Bytes(s.seeds[0], s.buf), maphash.Bytes(s.seeds[1], s.buf)}
}

// find gives the place of a hash in the table.
func (s *search) find(h [2]uint64) int {
	for at := int(h[0]) & (len(s.table) - 1); ; at = (at + 1) & (len(s.table) - 1) {
		if id := s.table[at]; id == 0 || s.hashes.at(int(id-1)) == h {
			return at
		}
	}
}

func (s *search) add(w *world, from uint32) (id uint32, fresh bool) {
	h := s.hash(w)
	at := s.find(h)
	if id := s.table[at]; id != 0 {
		return id - 1, false
	}
	n := s.hashes.n
	s.table[at] = uint32(n + 1)
	s.hashes.add(h)
	s.parent.add(from)
	if n%64 == 0 {
		s.done = append(s.done, 0)
	}
	if 5*n > 3*len(s.table) {
		s.table = make([]uint32, 2*len(s.table))
		for i := range s.hashes.n {
			s.table[s.find(s.hashes.at(i))] = uint32(i + 1)
		}
	}
	return uint32(n), true
}

// stuck finds a state from which no final one can be reached. It goes over
// the states from the last expanded to the first until nothing changes: nearly
// all moves lead to states that were expanded later.
func (s *search) stuck() (uint32, bool) {
	for changed := true; changed; {
		changed = false
		end := s.edges.n
		for k := s.order.n - 1; k >= 0; k-- {
			first := end - int(s.degree.at(k))
			id := s.order.at(k)
			for e := first; e < end && s.done[id/64]&(1<<(id%64)) == 0; e++ {
				to := s.edges.at(e)
				if s.done[to/64]&(1<<(to%64)) != 0 {
					s.done[id/64] |= 1 << (id % 64)
					changed = true
				}
			}
			end = first
		}
	}
	for id := range uint32(s.parent.n) {
		if s.done[id/64]&(1<<(id%64)) == 0 {
			return id, true
		}
	}
	return 0, false
}

// path replays the way to a state and tells it line by line.
func (s *search) path(sc *scenario, id uint32) []string {
	var ids []uint32
	for ; id != 0; id = s.parent.at(int(id)) {
		ids = append(ids, id)
	}
	var lines []string
	w := newWorld(sc)
	w.telling = true
	for k := len(ids) - 1; k >= 0; k-- {
		var next *world
		w.moves(func(c *world, host int, what string) {
			if next == nil && s.hash(c) == s.hashes.at(int(ids[k])) {
				next = c
				lines = append(lines, line(host, what))
			}
		})
		w = next
	}
	return lines
}

// line is one event of a trace; each host has a column.
func line(host int, what string) string {
	return fmt.Sprintf("%s host %d %s", strings.Repeat("                    ", host), host+1, what)
}

// String shows a slot in a trace.
func (v View) String() string {
	if !v.Readable {
		return "torn"
	}
	s := v.Slot
	return fmt.Sprintf("{%v %v %d.%d inc %d creation %d}", s.Phase, s.Mode, s.Ticket.Number(), s.Ticket.Host(), s.Incarnation, s.Creation)
}

func check(t *testing.T, sc scenario) {
	t.Helper()
	r := explore(sc)
	t.Logf("%-26s %d hosts x %d rounds, permits %d: %11d states (%d cut) in %6.1fs",
		sc.name, sc.hosts, sc.rounds, sc.permits, r.states, r.cut, r.took.Seconds())
	if r.fault != "" {
		t.Fatalf("%s\n%s", r.fault, strings.Join(r.trace, "\n"))
	}
}
