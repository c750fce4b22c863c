package bakery

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run only the random walk of this seed, and print its events")
	walks   = flag.Int("walks", 0, "number of random walks; 0: as many as fit into a second, or into 5 with -quick")
)

// Five hosts with all requests and all faults have too many states for a search. Random walks go
// deep instead. Each ends in calm: no request and no fault begins, and under a fair schedule
// every host must finish.
func TestRandom(t *testing.T) {
	if *oneSeed != 0 {
		wk := newWalk(*oneSeed)
		wk.w.telling = true
		wk.run()
		t.Logf("%+v\n%s", *wk.w.sc, strings.Join(wk.trace, "\n"))
		if wk.w.fault != "" {
			t.Fatal(wk.w.fault)
		}
		return
	}
	span := time.Second
	if *quick || *full {
		span *= 5
	}
	first, start, steps, n := rand.Uint64(), time.Now(), 0, 0
	for ; *walks > 0 && n < *walks || *walks == 0 && time.Since(start) < span; n++ {
		wk := newWalk(first + uint64(n))
		wk.run()
		steps += wk.steps
		if wk.w.fault != "" {
			t.Fatalf("%s\nafter %d events; to see them: go test ./bakery -run TestRandom -v -seed %d", wk.w.fault, wk.steps, first+uint64(n))
		}
	}
	t.Logf("%d walks from seed %d, %d events in %.1fs", n, first, steps, time.Since(start).Seconds())
}

type walk struct {
	w     *world
	rng   *rand.Rand
	steps int
	trace []string
}

func newWalk(seed uint64) *walk {
	rng := rand.New(rand.NewPCG(seed, 0))
	sc := &scenario{
		hosts: worldHosts, rounds: 2 + rng.IntN(6), permits: 1 + rng.IntN(3), modes: mixed, clocks: noClock, try: rng.IntN(2) == 0,
		settles: int8(rng.IntN(4)), cancels: int8(rng.IntN(3)), changes: int8(rng.IntN(4)), rewrites: int8(rng.IntN(3)),
		removes: int8(rng.IntN(4)), crashes: int8(rng.IntN(5)), rejoin: rng.IntN(4) > 0, unsure: rng.IntN(2) == 0,
		corrupt: int8(rng.IntN(4)), fails: int8(rng.IntN(4)), resumes: int8(rng.IntN(6)),
		blind: int8(rng.IntN(3)), abandon: true, joins: int8(rng.IntN(3)), locals: int8(rng.IntN(12)), bound: 1 + rng.IntN(3),
		minority: rng.IntN(mostMissing + 1),
	}
	if rng.IntN(3) == 0 {
		sc.modes = exclusive
	}
	return &walk{w: newWorld(sc), rng: rng}
}

// calmSteps bounds the calm part of a walk: about ten times the longest seen.
const calmSteps = 20000

func (wk *walk) run() {
	hosts := wk.w.sc.hosts
	for range 200 + wk.rng.IntN(1500) {
		// Faults are rare. Otherwise all of them would happen at the beginning.
		wk.w.calm = wk.rng.IntN(16) > 0
		wk.step(wk.rng.IntN(hosts))
		if wk.w.fault != "" {
			break
		}
	}
	wk.w.calm = true
	for i := range hosts {
		wk.w.actors[i].rounds = 0
	}
	for end := wk.steps + calmSteps; wk.w.fault == "" && !wk.w.final(); {
		moved := false
		for _, i := range wk.rng.Perm(hosts) {
			moved = wk.step(i) || moved
		}
		if !moved || wk.steps > end {
			wk.w.failf("PROGRESS: not every host finishes")
		}
	}
}

// step takes one of a host's moves. All have the same chance.
func (wk *walk) step(host int) bool {
	var next *world
	var n int
	var what string
	wk.w.now = uint64(wk.steps + 1)
	wk.w.movesOf(host, func(c *world, _ int, words string) {
		n++
		if wk.rng.IntN(n) > 0 {
			c.drop(host)
			return
		}
		if next != nil {
			next.drop(host)
		}
		next, what = c, words
	})
	if next == nil {
		return false
	}
	if wk.w.telling {
		wk.trace = append(wk.trace, line(host, what))
	}
	wk.w.drop(host)
	wk.w = next
	wk.steps++
	return true
}
