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
	seen   map[[2]uint64]uint32
	seeds  [2]maphash.Seed
	parent []uint32
	edges  []uint32 // of state s: edges[first[s]:first[s+1]], in the order of expansion
	first  []uint64
	order  []uint32 // the states in the order of expansion
	final  []uint32
	buf    []byte
}

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
	s := &search{seen: map[[2]uint64]uint32{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	root := newWorld(&sc)
	s.add(root, 0)
	stack := []node{{root, 0}}
	r := result{}
	for len(stack) > 0 && r.fault == "" {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		s.order = append(s.order, n.id)
		s.first = append(s.first, uint64(len(s.edges)))
		if beyond := n.w.beyond(); beyond || n.w.final() {
			s.final = append(s.final, n.id)
			r.cut += int(bit(beyond))
			if beyond {
				continue
			}
		}
		n.w.moves(func(c *world, _ int, _ string) {
			id, fresh := s.add(c, n.id)
			s.edges = append(s.edges, id)
			if c.fault != "" && r.fault == "" {
				r.fault, r.trace = c.fault, s.path(&sc, id)
			}
			if fresh {
				stack = append(stack, node{c, id})
			}
		})
	}
	s.first = append(s.first, uint64(len(s.edges)))
	if r.fault == "" {
		if id, stuck := s.stuck(); stuck {
			r.fault, r.trace = "DEADLOCK: from here not everybody can finish", s.path(&sc, id)
		}
	}
	r.states, r.took = len(s.parent), time.Since(start)
	return r
}

func (s *search) add(w *world, from uint32) (id uint32, fresh bool) {
	s.buf = w.key(s.buf[:0])
	h := [2]uint64{maphash.Bytes(s.seeds[0], s.buf), maphash.Bytes(s.seeds[1], s.buf)}
	if id, ok := s.seen[h]; ok {
		return id, false
	}
	id = uint32(len(s.parent))
	s.seen[h] = id
	s.parent = append(s.parent, from)
	return id, true
}

// stuck finds a state from which no final one can be reached.
func (s *search) stuck() (uint32, bool) {
	n := len(s.parent)
	start := make([]uint64, n+1) // by target: the sources
	for _, to := range s.edges {
		start[to+1]++
	}
	for i := range n {
		start[i+1] += start[i]
	}
	fill := append([]uint64(nil), start[:n]...)
	sources := make([]uint32, len(s.edges))
	for k, from := range s.order {
		for _, to := range s.edges[s.first[k]:s.first[k+1]] {
			sources[fill[to]] = from
			fill[to]++
		}
	}
	reached := make([]bool, n)
	todo := append([]uint32(nil), s.final...)
	for _, id := range todo {
		reached[id] = true
	}
	for len(todo) > 0 {
		to := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range sources[start[to]:start[to+1]] {
			if !reached[from] {
				reached[from] = true
				todo = append(todo, from)
			}
		}
	}
	for id, ok := range reached {
		if !ok {
			return uint32(id), true
		}
	}
	return 0, false
}

// path replays the way to a state and tells it line by line.
func (s *search) path(sc *scenario, id uint32) []string {
	var ids []uint32
	for ; id != 0; id = s.parent[id] {
		ids = append(ids, id)
	}
	var lines []string
	w := newWorld(sc)
	w.telling = true
	for k := len(ids) - 1; k >= 0; k-- {
		var next *world
		w.moves(func(c *world, host int, what string) {
			if next != nil {
				return
			}
			s.buf = c.key(s.buf[:0])
			h := [2]uint64{maphash.Bytes(s.seeds[0], s.buf), maphash.Bytes(s.seeds[1], s.buf)}
			if s.seen[h] == ids[k] {
				next = c
				lines = append(lines, fmt.Sprintf("%s host %d %s", strings.Repeat("                    ", host), host+1, what))
			}
		})
		w = next
	}
	return lines
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
	t.Logf("%-22s %d hosts x %d rounds, permits %d: %11d states (%d cut) in %6.1fs",
		sc.name, sc.hosts, sc.rounds, sc.permits, r.states, r.cut, r.took.Seconds())
	if r.fault != "" {
		t.Fatalf("%s\n%s", r.fault, strings.Join(r.trace, "\n"))
	}
}
