package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/layout"
)

// world is one run.
type world struct {
	seed     uint64
	dir      string // of the machines' files
	sb       layout.Superblock
	trace    *trace
	disk     *disks
	rules    *rules
	standing *standing // nil: faults come and go
	machines []*machine

	latency time.Duration
	think   time.Duration // longest pause of clients
	clients int           // per host
	linger  time.Duration // for which hosts keep a lock; 0: not at all, and clients do not come soon
	born    int           // number of clients so far
	guarded map[string]*resource

	calmed chan struct{} // closed when there are no more faults, and clients end
	over   chan struct{} // closed at the end
	ended  bool
	tasks  sync.WaitGroup
	counts map[string]int
}

// result is the result of a run.
type result struct {
	seed   uint64
	failed []string
	sum    uint64
	steps  int
	counts map[string]int
	events string // directory of the hosts' event journals, if it failed
	stayed *standing
}

// run runs a seed: with one fault that stays, or with many that come and go. out, if not nil, gets
// the trace.
func run(t *testing.T, seed uint64, stays bool, out io.Writer) (r result) {
	t.Helper()
	ended := false
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		t.Fatal(err)
	}
	cryptotest.SetGlobalRandom(t, seed)
	defer func() {
		// A bakeryd that stops with IO in flight relies on the end of its process.
		if p := recover(); p != nil && !(ended && strings.Contains(fmt.Sprint(p), "main bubble goroutine has exited")) {
			panic(p)
		}
	}()
	synctest.Test(t, func(*testing.T) {
		seedChoices(seed % 61)
		w := newWorld(seed, dir, stays, out)
		if stays {
			w.standing = newStanding(w)
			w.standing.play()
		} else {
			w.play()
		}
		ended = true
		r = result{seed: seed, failed: w.rules.failed, sum: w.trace.sum, steps: w.trace.steps, counts: w.counts, stayed: w.standing}
		if len(r.failed) > 0 {
			r.events = dir
		} else if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
	})
	return r
}

// seedChoices starts the runtime's sequence of choices at another point.
func seedChoices(n uint64) {
	ready := make(chan struct{}, 1)
	for range n {
		ready <- struct{}{}
		select {
		case <-ready:
		case <-ready:
		}
	}
}

func newWorld(seed uint64, dir string, stays bool, out io.Writer) *world {
	w := &world{seed: seed, dir: dir, trace: newTrace(out), calmed: make(chan struct{}), over: make(chan struct{}),
		counts: map[string]int{}, guarded: map[string]*resource{}}
	rng := w.random("world", 0)
	fixed, hosts := rng.IntN(2) == 0 || stays, 24 // a host that chooses its own id takes another one after each crash
	if fixed {
		hosts = 6
	}
	w.sb = layout.Superblock{
		UUID: layout.UUID{0: 1, 15: 2}, Name: "simulated", Geometry: layout.Geometry{Stride: 512, Hosts: hosts, Locks: 6},
		Lease: time.Second, Formatted: time.Now().UTC(),
	}
	if rng.IntN(8) == 0 && !stays {
		w.sb.Policy = layout.PolicyManual
	}
	if rng := w.random("fence", 0); w.sb.Policy == layout.PolicyLease && rng.IntN(4) == 0 && !stays {
		w.sb.Policy, w.sb.FenceAfter = layout.PolicyFence, []time.Duration{0, layout.MinFenceAfter(w.sb.Lease), w.sb.Lease / 2}[rng.IntN(3)]
	}
	if n := numberOfDisks(w, stays); n > 1 {
		w.count(fmt.Sprint("run on ", n, " disks"))
		w.sb.Members, w.sb.Position = layout.Members{Epoch: 1, Positions: n}, 1
		for i := range n {
			w.sb.Members.Disks[i] = layout.UUID{0: 3, 15: byte(i + 1)}
		}
		if w.sb.Policy == layout.PolicyFence { // reservations are of one disk
			w.sb.Policy, w.sb.FenceAfter = layout.PolicyLease, 0
		}
	}
	w.latency = time.Duration(300+rng.IntN(3000)) * time.Microsecond
	if stays { // if a sector fails, records are read one by one, within the budget of a claim
		w.latency /= 2
	}
	w.think = time.Duration(20+rng.IntN(400)) * time.Millisecond
	w.clients = 1 + rng.IntN(3)
	if seed%2 == 0 {
		w.linger = 20 * time.Millisecond
	}
	// A slot of an id that no host takes again may be settled by the old disk alone: README.md.
	w.disk = newDisks(w, fixed && !stays)
	w.rules = newRules(w)
	withWatchdogs := rng.IntN(4) == 0
	machines := 2 + rng.IntN(3)
	if stays {
		machines = 3
	}
	for n := 1; n <= machines; n++ {
		m := newMachine(w, n)
		if fixed {
			m.hostID = n
		}
		if withWatchdogs {
			m.watchdog = &machineWatchdog{m: m}
		}
		w.machines = append(w.machines, m)
	}
	if r := w.disk.replacing; r != nil {
		r.m = newMachine(w, 7)
		r.m.up, r.m.hostID = true, w.sb.Geometry.Hosts
	}
	if rng.IntN(4) == 0 && !stays {
		w.machines[0].rate = offRate(rng)
	}
	return w
}

// offRate returns the rate of a clock that is wrong by a tenth.
func offRate(rng *rand.Rand) float64 { return []float64{0.9, 1.1}[rng.IntN(2)] }

// random returns a separate source of randomness, so that a change in one place changes little
// elsewhere.
func (w *world) random(what string, n int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, what, n)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

func (w *world) now() int64 { return int64(time.Since(w.trace.began)) }

func (w *world) count(what string) { w.counts[what]++ }

func (w *world) calm() bool {
	select {
	case <-w.calmed:
		return true
	default:
		return false
	}
}

// stop ends the run.
func (w *world) stop() {
	if !w.ended {
		w.ended = true
		close(w.over)
	}
}

// after calls f after a drawn delay, unless the run ends before.
func (w *world) after(rng *rand.Rand, least, most time.Duration, f func()) {
	t := time.NewTimer(least + time.Duration(rng.Int64N(int64(most-least))))
	w.tasks.Go(func() {
		defer t.Stop()
		select {
		case <-t.C:
			f()
		case <-w.over:
		}
	})
}

func (w *world) resource(name string) *resource {
	if w.guarded[name] == nil {
		w.guarded[name] = &resource{w: w, name: name}
	}
	return w.guarded[name]
}

const (
	storm    = 12 * time.Second // duration of the faults
	patience = 60 * time.Second // then all hosts must be served within this time
)

// play is the run.
func (w *world) play() {
	for _, m := range w.machines {
		w.after(m.rng, 0, 300*time.Millisecond, m.boot)
	}
	f := newFaults(w)
	w.tasks.Go(f.run)
	if r := w.disk.replacing; r != nil {
		w.tasks.Go(r.run)
	}
	if w.sleep(storm) {
		f.end()
		close(w.calmed)
		w.trace.step(0, "calm")
		next := time.Now().Add(w.sb.Lease)
		for give := time.Now().Add(patience); !w.allServed() && w.sleep(50*time.Millisecond); {
			if time.Now().After(next) {
				next = time.Now().Add(w.sb.Lease)
				f.operate()
			}
			if time.Now().After(give) {
				w.rules.violate("PROGRESS", "%v after the last fault not all hosts could have every lock: %s", patience, w.unserved())
			}
		}
	}
	w.finish()
}

// finish ends the run and checks the whole of it.
func (w *world) finish() {
	w.stop()
	if r := w.disk.replacing; r != nil {
		r.m.kill()
	}
	for _, m := range w.machines {
		m.up = false
		m.resume()
		m.restore()
		m.kill()
	}
	w.tasks.Wait()
	if len(w.rules.failed) == 0 {
		w.rules.history()
	}
}

// sleep waits, and returns false if the run is over.
func (w *world) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.over:
		return false
	}
}

func (w *world) allServed() bool { return w.unserved() == "" }

// unserved returns the hosts that were not served after the faults.
func (w *world) unserved() (names string) {
	if r := w.disk.replacing; r != nil && !r.done {
		names = r.m.name() + " (replaces a disk) "
	}
	for _, m := range w.machines {
		if !w.rules.servedBy[m] && !m.spare && !(w.disk.several() && w.shared(m)) {
			why := "is down"
			if m.proc != nil {
				_, err := m.proc.svc.Joined()
				why = fmt.Sprint("joined: ", err == nil, " ", err)
			}
			names += fmt.Sprintf("m%d (%s) ", m.n, why)
		}
	}
	return names
}

// shared reports whether another machine has the id of a machine: on several disks both may have
// claimed it half, and then neither gets it (README.md).
func (w *world) shared(m *machine) bool {
	return slices.ContainsFunc(w.machines, func(o *machine) bool { return o.spare && m.hostID != 0 && o.hostID == m.hostID })
}

func ioError(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, errKilled) || errors.Is(err, errDetached)
}
