package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/clock/clocktest"
)

// machine is a host, which outlives its processes.
type machine struct {
	w      *world
	n      int // from 1
	rng    *rand.Rand
	path   *path
	hostID int      // that it is configured with; 0: any
	id     [16]byte // machine id: not always its own
	boots  int
	skew   time.Duration // by which its wall clock is wrong
	rate   float64       // at which its monotonic clock runs
	dog    *dog          // nil: it has no watchdog

	dir     string // of its files
	runs    int    // processes so far
	proc    *process
	running chan struct{} // closed while the machine runs
	paused  bool
	up      bool            // powered
	off     chan struct{}   // closed when it is not any more
	away    map[int]*client // those that come back to the next bakeryd, by number
	spare   bool            // no client relies on it
	gone    bool            // it is not to start any more
}

// process is one bakeryd.
type process struct {
	m      *machine
	svc    *daemon.Service
	dir    string
	cancel context.CancelFunc
	killed chan struct{}
	err    error // what it returned
	alive  bool

	clients sync.WaitGroup
}

func newMachine(w *world, n int) *machine {
	m := &machine{w: w, n: n, rng: w.random("machine", n), rate: 1, dir: filepath.Join(w.dir, fmt.Sprint("m", n)), running: make(chan struct{}), away: map[int]*client{}}
	m.id[0], m.id[15] = 0xaa, byte(n)
	close(m.running)
	m.path = newPath(m, w.latency)
	if err := os.MkdirAll(m.files(), 0o755); err != nil {
		panic(err)
	}
	return m
}

// lasts is how long it takes until so much time has passed on that clock.
func (m *machine) lasts(d time.Duration) time.Duration { return time.Duration(float64(d) / m.rate) }

func (m *machine) name() string { return fmt.Sprint("m", m.n) }

// files is the directory of the process in force.
func (m *machine) files() string { return filepath.Join(m.dir, fmt.Sprint(m.runs)) }

func (m *machine) bootID() (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:], uint64(m.n)<<32|uint64(m.boots))
	id[15] = 0xbb
	return id
}

// boot powers the machine up and starts bakeryd.
func (m *machine) boot() {
	if m.up {
		return
	}
	m.up, m.off = true, make(chan struct{})
	m.boots++
	m.w.disk.forget(m)
	m.w.trace.step(m.n, "boots")
	m.start()
}

// start starts bakeryd, once what the one before has under way has returned:
// until then its lock file is taken.
func (m *machine) start() {
	if !m.up || m.proc != nil || m.gone {
		return
	}
	boot := m.boots
	for under := m.w.disk.of(m); len(under) > 0; under = m.w.disk.of(m) {
		select {
		case <-under[0].done:
		case <-m.w.over:
			return
		}
		if !m.up || m.proc != nil || m.boots != boot {
			return
		}
	}
	p := &process{m: m, dir: m.files(), killed: make(chan struct{}), alive: true}
	m.proc = p
	m.w.trace.step(m.n, "starts")
	m.w.standing.begins(m, m, "to join")
	cfg := daemon.Config{
		Device: "simulated", HostID: m.hostID, Name: m.name(), RuntimeDir: p.dir, StateDir: p.dir,
		Keep: true, Clock: clocktest.Clock{Rate: m.rate}, Logger: m.w.trace.logger(m.n),
	}.On(func() (blockdev.Device, error) { return m.path.open(p) }).In(daemon.Machine{
		Wall:      func() time.Time { return time.Now().Add(m.skew) },
		MachineID: m.id, BootID: m.bootID(), Watchdog: p.openDog,
	})
	if m.dog != nil {
		cfg.Watchdog = "simulated"
	}
	p.svc = daemon.NewService(cfg, p.joined)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	m.w.tasks.Go(func() {
		p.err = p.svc.Run(ctx)
		cancel()
		m.w.rules.ended(p)
		if p.alive {
			m.w.trace.step(m.n, "bakeryd ended: "+fmt.Sprint(p.err))
			m.w.rules.died(p)
			m.retire(p)
			if errors.Is(p.err, daemon.ErrHandedOver) {
				m.w.after(m.rng, 0, m.w.sb.Lease, m.start)
			} else {
				m.w.after(m.rng, time.Second, 3*time.Second, m.start) // as systemd does
			}
		}
		p.clients.Wait()
	})
}

// joined has the clients come.
func (p *process) joined(d *daemon.Daemon) {
	p.m.w.trace.step(p.m.n, "joined", int64(d.HostID()))
	p.m.w.standing.ends(p.m)
	if p.m.w.rules.current[p] != nil {
		p.m.w.standing.lost(p.m)
	}
	p.m.w.rules.joined(p, d)
	for i := range p.m.w.clients {
		if c := p.m.away[i]; c != nil {
			delete(p.m.away, i)
			c.back <- arrival{p, d}
			continue
		}
		c := newClient(p, d, i)
		p.clients.Go(c.run)
	}
}

// retire makes the files of a process those of the next one. What is left of the
// process must not change them: it has the ones that it had.
func (m *machine) retire(p *process) {
	p.alive = false
	m.proc = nil
	close(p.killed)
	m.runs++
	if err := os.MkdirAll(m.files(), 0o755); err != nil {
		panic(err)
	}
	old, err := os.ReadDir(p.dir)
	if err != nil {
		panic(err)
	}
	for _, e := range old {
		if strings.HasSuffix(e.Name(), ".lock") || !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(p.dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(m.files(), e.Name()), b, 0o600)
		}
		if err != nil {
			panic(err)
		}
	}
}

// leave has the machine leave for good.
func (m *machine) leave() {
	m.gone = true
	if m.proc != nil {
		m.proc.svc.Drain()
	}
}

// restart has bakeryd end with all as it stands, for the next one to go on.
func (m *machine) restart() {
	if m.proc != nil {
		m.w.trace.step(m.n, "bakeryd is restarted")
		m.proc.cancel()
	}
}

// kill ends bakeryd immediately, and its mortal clients.
func (m *machine) kill() {
	p := m.proc
	if p == nil {
		return
	}
	m.w.trace.step(m.n, "bakeryd is killed")
	m.w.rules.died(p)
	m.retire(p)
	p.cancel()
}

// powerCut ends the machine at once.
func (m *machine) powerCut() {
	if !m.up {
		return
	}
	m.w.trace.step(m.n, "power cut")
	m.up = false
	close(m.off)
	m.kill()
	m.w.rules.off(m)
	m.w.disk.powerCut(m)
	if m.dog != nil {
		m.dog.stop()
	}
	for _, f := range m.list() {
		if !strings.HasSuffix(f, ".left") && !strings.Contains(f, ".events") { // what was in /run
			if err := os.Remove(f); err != nil {
				panic(err)
			}
		}
	}
	m.resume()
}

func (m *machine) list() []string {
	files, err := filepath.Glob(filepath.Join(m.files(), "*"))
	if err != nil {
		panic(err)
	}
	return files
}

// pause stops the machine, its clocks apart.
func (m *machine) pause() {
	if m.paused {
		return
	}
	m.w.trace.step(m.n, "paused")
	m.paused = true
	m.running = make(chan struct{})
}

func (m *machine) resume() {
	if !m.paused {
		return
	}
	m.w.trace.step(m.n, "resumed")
	m.paused = false
	close(m.running)
}
