package standing_test

import (
	"flag"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// search takes a scenario through every order of what may happen. It remembers states by a hash of 128 bits, and the
// graph of moves: at the end, from every state one must be reachable in which every host that is up is done.
type search struct {
	seeds  [2]maphash.Seed
	ids    map[[2]uint64]uint32
	parent []uint32
	order  []uint32 // states as they were expanded
	ends   []uint32 // of each of them: where its edges end
	edges  []uint32
	done   []bool
	keyer  keyer
}

type result struct {
	states int
	fault  string // "": none
	trace  []string
	took   time.Duration
}

func explore(sc scenario, limit int) (r result) {
	begin := time.Now()
	s := &search{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, ids: map[[2]uint64]uint32{}}
	type node struct {
		w  *world
		id uint32
	}
	root := newWorld(&sc)
	s.add(root, 0)
	stack := []node{{root, 0}}
	for len(stack) > 0 && r.fault == "" && len(s.parent) < limit {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if n.w.final() {
			s.done[n.id] = true
		} else {
			n.w.expand(func(c *world, _ int, _ string) {
				id, fresh := s.add(c, n.id)
				s.edges = append(s.edges, id)
				if c.fault != "" && r.fault == "" {
					r.fault, r.trace = c.fault, s.path(&sc, id, 0)
				}
				if fresh {
					stack = append(stack, node{c, id})
				}
			})
		}
		s.order = append(s.order, n.id)
		s.ends = append(s.ends, uint32(len(s.edges)))
	}
	if id, stuck := s.stuck(); stuck && r.fault == "" && len(stack) == 0 && strings.HasPrefix("DEADLOCK", sc.want) {
		r.fault, r.trace = "DEADLOCK: from here not every host that is up can finish", s.path(&sc, id, 40)
	}
	r.states, r.took = len(s.parent), time.Since(begin)
	return r
}

func (s *search) hash(w *world) [2]uint64 {
	w.key(&s.keyer)
	return [2]uint64{maphash.Bytes(s.seeds[0], s.keyer.b), maphash.Bytes(s.seeds[1], s.keyer.b)}
}

func (s *search) add(w *world, from uint32) (id uint32, fresh bool) {
	h := s.hash(w)
	if id, ok := s.ids[h]; ok {
		return id, false
	}
	id = uint32(len(s.parent))
	s.ids[h] = id
	s.parent = append(s.parent, from)
	s.done = append(s.done, false)
	return id, true
}

// stuck returns a state from which no final one can be reached.
func (s *search) stuck() (uint32, bool) {
	for changed := true; changed; {
		changed = false
		for k := len(s.order) - 1; k >= 0; k-- {
			first := uint32(0)
			if k > 0 {
				first = s.ends[k-1]
			}
			id := s.order[k]
			for _, to := range s.edges[first:s.ends[k]] {
				if s.done[to] && !s.done[id] {
					s.done[id], changed = true, true
				}
			}
		}
	}
	for id, done := range s.done {
		if !done {
			return uint32(id), true
		}
	}
	return 0, false
}

// path tells how a state was reached, each host in its column.
func (s *search) path(sc *scenario, id uint32, after int) (lines []string) {
	var ids []uint32
	for ; id != 0; id = s.parent[id] {
		ids = append(ids, id)
	}
	w := newWorld(sc)
	for k := len(ids) - 1; k >= 0; k-- {
		var next *world
		w.expand(func(c *world, host int, what string) {
			if next == nil && s.ids[s.hash(c)] == ids[k] {
				next = c
				lines = append(lines, fmt.Sprintf("%3d %s%s", (c.now-origin)/tick, strings.Repeat(" ", 44*host), what))
			}
		})
		w = next
	}
	if after > 0 {
		lines = append(lines, "from here not every host that is up can finish; one way on:")
	}
	for range after { // one way on from there
		var next *world
		w.expand(func(c *world, host int, what string) {
			if next == nil {
				next = c
				lines = append(lines, fmt.Sprintf("%3d %s%s", (c.now-origin)/tick, strings.Repeat(" ", 44*host), what))
			}
		})
		w = next
	}
	return lines
}

var limit = flag.Int("limit", 20_000_000, "stop after so many states")

var full = flag.Bool("full", false, "explore the large scenarios too, for minutes")

var quick = []scenario{
	{name: "calm", rounds: [both]int{1, 1}},
	{name: "crash", rounds: [both]int{1, 1}, crashes: 1},
	{name: "crash, slot lost", rounds: [both]int{1, 1}, crashes: 1, torn: 1},
	{name: "record", rounds: [both]int{1, 1}, record: 1},
	{name: "crash, record", rounds: [both]int{1, 1}, crashes: 1, record: 1},
}

var large = []scenario{
	{name: "restart", rounds: [both]int{1, 1}, crashes: 1, resumes: 1},
	{name: "rejoin", rounds: [both]int{1, 1}, crashes: 1, rejoins: 1},
	{name: "stall", rounds: [both]int{1, 1}, stalls: 1, rejoins: 1},
}

func TestExplore(t *testing.T) {
	scenarios := quick
	if *full {
		scenarios = append(quick, large...)
	}
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			r := explore(sc, *limit)
			t.Logf("%d states in %.1f s", r.states, r.took.Seconds())
			if r.fault != "" {
				t.Log("\n" + strings.Join(r.trace, "\n"))
			}
			require.Empty(t, r.fault)
		})
	}
}
