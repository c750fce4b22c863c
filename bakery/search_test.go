package bakery

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/test/explore/states"
)

// search takes a scenario through every interleaving, the shortest first. At the end a state in
// which every host has finished must be reachable from every state. This shows that there is no
// deadlock and no state from which only endless polling follows.
type search struct {
	*states.Graph
	queue  states.Pile[node] // states that were not expanded yet
	node   node              // of the state that is expanded
	shared shared
	key    code
}

type result struct {
	states int
	fault  string // empty if none
	trace  []string
	took   time.Duration
}

func explore(sc scenario) result {
	start := time.Now()
	s := &search{Graph: states.New(), shared: shared{actorIDs: map[string]uint32{}, tableIDs: map[string]uint32{},
		sectorIDs: map[sector]uint32{}}}
	w := newWorld(&sc)
	w.key(&s.key)
	s.Begin(s.key.b)
	s.push(w, nil)
	r := result{}
	for id := uint32(0); int(id) < s.Len() && r.fault == ""; id++ {
		s.take(w, id)
		if w.final() {
			s.Final(id)
		}
		w.moves(func(c *world, host int, _ string) {
			to, fresh := s.Reach(s.keyOf(c, host), id)
			if fresh {
				s.push(c, w)
			}
			if c.fault != "" && r.fault == "" {
				r.fault, r.trace = c.fault, s.path(&sc, to)
			}
			c.drop(host)
		})
		s.Expanded()
	}
	if r.fault == "" {
		if id, stuck := s.Stuck(); stuck {
			r.fault, r.trace = "DEADLOCK: from here not every host can finish", s.path(&sc, id)
		}
	}
	r.states, r.took = s.Len(), time.Since(start)
	return r
}

// keyOf returns the key of a world after an event of a host.
func (s *search) keyOf(w *world, host int) []byte {
	w.actors[host].encode(w.sc)
	w.key(&s.key)
	return s.key.b
}

// shared holds the parts that many worlds have in common.
type shared struct {
	actors   []*actor
	actorIDs map[string]uint32 // by code
	tables   [][]Host
	tableIDs map[string]uint32 // by code

	sectors   []sector
	sectorIDs map[sector]uint32
}

// node is a state in the queue: small and without pointers, for there may be many.
type node struct {
	hosts   uint32
	actors  [mostHosts]uint32
	sectors [2 * mostHosts]uint32
	rest    rest
}

const mostHosts = 3 // maximum in a search

// push adds a state to the queue. It shares most of its parts with the state that it comes from,
// if any.
func (s *search) push(w, from *world) {
	n := s.node
	n.rest = w.rest
	if from == nil || &w.hosts[0] != &from.hosts[0] {
		n.hosts = s.tableID(w.hosts)
	}
	for i := range w.sc.hosts {
		if from == nil || w.actors[i] != from.actors[i] {
			n.actors[i] = s.actorID(w.actors[i], i)
		}
	}
	for i := range w.disk {
		if from == nil || w.disk[i] != from.disk[i] {
			n.sectors[i] = s.sectorID(w.disk[i])
		}
	}
	s.queue.Add(n)
}

// take sets w to the world of the next state.
func (s *search) take(w *world, id uint32) {
	n := s.queue.Take(int(id))
	s.node = n
	for i := range w.disk {
		w.disk[i] = s.shared.sectors[n.sectors[i]]
	}
	w.rest, w.hosts = n.rest, s.shared.tables[n.hosts]
	for i := range w.sc.hosts {
		w.actors[i] = s.shared.actors[n.actors[i]]
	}
}

func (s *search) actorID(ac *actor, host int) uint32 {
	if ac.id != 0 {
		return ac.id - 1
	}
	c := &s.key
	c.b = append(append(c.b[:0], byte(host)), ac.code.b...)
	c.numbers(ac.code.n, 0)
	id, ok := s.shared.actorIDs[string(c.b)]
	if !ok {
		id = uint32(len(s.shared.actors))
		known := newActor()
		known.copy(ac)
		known.code = code{bytes.Clone(ac.code.b), slices.Clone(ac.code.n)}
		known.id = id + 1
		s.shared.actors = append(s.shared.actors, known)
		s.shared.actorIDs[string(c.b)] = id
	}
	return id
}

func (s *search) sectorID(x sector) uint32 {
	id, ok := s.shared.sectorIDs[x]
	if !ok {
		id = uint32(len(s.shared.sectors))
		s.shared.sectors = append(s.shared.sectors, x)
		s.shared.sectorIDs[x] = id
	}
	return id
}

func (s *search) tableID(hosts []Host) uint32 {
	c := &s.key
	c.b = c.b[:0]
	c.table(hosts)
	id, ok := s.shared.tableIDs[string(c.b)]
	if !ok {
		id = uint32(len(s.shared.tables))
		s.shared.tables = append(s.shared.tables, hosts)
		s.shared.tableIDs[string(c.b)] = id
	}
	return id
}

// path replays the way to a state and returns one line for each event.
func (s *search) path(sc *scenario, id uint32) (lines []string) {
	w := newWorld(sc)
	w.telling = true
	for _, id := range s.Path(id) {
		var next *world
		w.moves(func(c *world, host int, what string) {
			if at, ok := s.Find(s.keyOf(c, host)); next == nil && ok && at == id {
				next = c
				lines = append(lines, line(host, what))
			}
		})
		w = next
	}
	return lines
}

// line formats one event of a trace. Each host has a column.
func line(host int, what string) string {
	return fmt.Sprintf("%s host %d %s", strings.Repeat("                    ", host), host+1, what)
}

// String returns the slot as a trace shows it.
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
	t.Logf("%-26s %d hosts x %d rounds, permits %d: %11d states in %6.1fs",
		sc.name, sc.hosts, sc.rounds, sc.permits, r.states, r.took.Seconds())
	if r.fault != "" {
		t.Fatalf("%s\n%s", r.fault, strings.Join(r.trace, "\n"))
	}
}
