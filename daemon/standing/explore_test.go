package standing_test

import (
	"flag"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/explore/states"
)

func init() { debug.SetGCPercent(200) } // a search makes much garbage, and keeps little

// search takes a scenario through every order of events, the shortest first. At the end a state
// in which every host that is up is done must be reachable from every state.
type search struct {
	*states.Graph
	keyer keyer
}

type result struct {
	states int
	fault  string // "": none
	trace  []string
	took   time.Duration
}

func explore(sc scenario, limit int) (r result) {
	begin := time.Now()
	s := &search{Graph: states.New()}
	root := newWorld(&sc)
	s.Begin(s.key(root))
	var queue states.Pile[*world]
	queue.Add(root)
	id := 0
	for ; id < s.Len() && r.fault == "" && s.Len() < limit; id++ {
		w := queue.Take(id)
		if w.final() {
			s.Final(uint32(id))
		} else {
			w.expand(func(c *world, _ int, _ string) {
				to, fresh := s.Reach(s.key(c), uint32(id))
				if fresh {
					queue.Add(c)
				}
				if c.fault != "" && r.fault == "" {
					r.fault, r.trace = c.fault, s.path(&sc, to, 0)
				}
				if !fresh {
					c.drop(false)
				}
			})
		}
		s.Expanded()
		w.drop(true)
	}
	if r.fault == "" && id == s.Len() && strings.HasPrefix("DEADLOCK", sc.want) {
		if id, stuck := s.Stuck(); stuck {
			r.fault, r.trace = "DEADLOCK: from here not every host that is up can finish", s.path(&sc, id, 40)
		}
	}
	r.states, r.took = s.Len(), time.Since(begin)
	return r
}

func (s *search) key(w *world) []byte {
	w.key(&s.keyer)
	return s.keyer.b
}

// path describes the way to a state, each host in its column, and one way on from there.
func (s *search) path(sc *scenario, id uint32, after int) (lines []string) {
	w := newWorld(sc)
	move := func(ok func(c *world) bool) {
		var next *world
		w.expand(func(c *world, host int, what string) {
			if next == nil && ok(c) {
				next = c
				lines = append(lines, fmt.Sprintf("%3d %s%s", (c.now-origin)/tick, strings.Repeat(" ", 44*host), what))
			}
		})
		w = next
	}
	for _, id := range s.Path(id) {
		move(func(c *world) bool {
			at, ok := s.Find(s.key(c))
			return ok && at == id
		})
	}
	if after > 0 {
		lines = append(lines, "from here not every host that is up can finish; one way on:")
	}
	for range after {
		move(func(*world) bool { return true })
	}
	return lines
}

var limit = flag.Int("limit", 20_000_000, "stop after this number of states")

var (
	quick = flag.Bool("quick", false, "explore all quick scenarios, not only the small ones")
	full  = flag.Bool("full", false, "explore all quick and all large scenarios, for minutes")
)

// small scenarios run in every test run; medium ones are also quick ones.
var small = []scenario{
	{name: "calm", rounds: [both]int{1, 1}},
	{name: "crash", rounds: [both]int{1, 1}, crashes: 1},
	{name: "crash, slot lost", rounds: [both]int{1, 1}, crashes: 1, torn: 1},
	{name: "crash, look", rounds: [both]int{1, 1}, crashes: 1, looks: 1},
}

// joins is a host that joins while the other one reads the slots under a hold (VOID).
var joins = scenario{name: "join, look", rounds: [both]int{1, 1}, left: true, rejoins: 1, looks: 1,
	stalls: 2, items: 1<<(items+itemReadTable) | 1<<(items+itemReadSlot)}

// fences is a host that is fenced before its lease is over (SURE).
var fences = scenario{name: "fence", rounds: [both]int{1, 1}, after: length / 2, stalls: 1,
	items: 1<<itemProcess | 1<<itemReadTable | 1<<itemWriteRecord | 1<<itemWriteSlot}

var medium = []scenario{
	{name: "record", rounds: [both]int{1, 1}, record: 1},
	{name: "crash, record", rounds: [both]int{1, 1}, crashes: 1, record: 1},
}

var large = []scenario{
	joins,
	fences,
	{name: "restart", rounds: [both]int{1, 1}, crashes: 1, resumes: 1},
	{name: "rejoin", rounds: [both]int{1, 1}, crashes: 1, rejoins: 1},
	{name: "stall", rounds: [both]int{1, 1}, stalls: 1, rejoins: 1},
}

func TestExplore(t *testing.T) {
	scenarios := small
	if *quick || *full {
		scenarios = append(scenarios, medium...)
	}
	if *full {
		scenarios = append(scenarios, large...)
	}
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r := explore(sc, *limit)
			t.Logf("%d states in %.1f s", r.states, r.took.Seconds())
			if r.fault != "" {
				t.Log("\n" + strings.Join(r.trace, "\n"))
			}
			require.Empty(t, r.fault)
		})
	}
}
