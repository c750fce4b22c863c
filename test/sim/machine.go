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

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/test/clocktest"
)

// machine is a host; it outlives its processes.
type machine struct {
	w        *world
	n        int // from 1
	rng      *rand.Rand
	paths    []*path  // to the disks
	hostID   int      // as configured; 0: any
	id       [16]byte // machine id, which another machine may share
	boots    int
	skew     time.Duration    // error of its wall clock
	rate     float64          // of its monotonic clock
	watchdog *machineWatchdog // nil if none

	dir     string // of its files
	runs    int    // number of processes so far
	proc    *process
	running chan struct{} // closed while the machine runs
	paused  bool
	up      bool            // powered
	off     chan struct{}   // closed at power-off
	away    map[int]*client // clients that come back to the next bakeryd, by number
	spare   bool            // no client depends on it
	gone    bool            // it does not start again
	doom    func()          // kills bakeryd when the first copy of a slot is written; nil if none
}

// process is one process of bakeryd.
type process struct {
	m      *machine
	svc    *daemon.Service
	dir    string
	cancel context.CancelFunc
	killed chan struct{}
	err    error // result of Run
	alive  bool
	began  time.Time

	behind map[*disk]bool      // disks that it must not open: they were set back before
	acked  map[*disk][]byte    // the host record that a disk acknowledged last
	waits  map[*disk]time.Time // since when a request hangs on a disk that stopped
	last   *term               // lease when it ended; nil before, or if none
	epoch  uint64              // greatest in a host record that it wrote
	filler *handle             // of a disk that is no member yet; nil if none
	keep   []*handle           // that kept a file

	clients sync.WaitGroup
}

func newMachine(w *world, n int) *machine {
	m := &machine{w: w, n: n, rng: w.random("machine", n), rate: 1, dir: filepath.Join(w.dir, fmt.Sprint("m", n)), running: make(chan struct{}), away: map[int]*client{}}
	m.id[0], m.id[15] = 0xaa, byte(n)
	close(m.running)
	for _, d := range w.disk.all {
		m.paths = append(m.paths, newPath(m, d, w.latency))
	}
	if err := os.MkdirAll(m.files(), 0o755); err != nil {
		panic(err)
	}
	return m
}

// lasts returns the real time in which d passes on the machine's clock.
func (m *machine) lasts(d time.Duration) time.Duration { return time.Duration(float64(d) / m.rate) }

func (m *machine) name() string { return fmt.Sprint("m", m.n) }

// files returns the directory of the current process.
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

// start starts bakeryd, with one disk when all IO of the previous process has returned: until then
// its lock file is taken. With several a disk that hangs must not delay it.
func (m *machine) start() {
	if !m.up || m.proc != nil || m.gone || m.w.ended {
		return
	}
	boot := m.boots
	for under := m.w.disk.of(m); len(under) > 0 && len(m.paths) == 1; under = m.w.disk.of(m) {
		select {
		case <-under[0].done:
		case <-m.w.over:
			return
		}
		if !m.up || m.proc != nil || m.boots != boot {
			return
		}
	}
	p := m.begin()
	m.w.standing.begins(m, m, "to join")
	p.svc = daemon.NewService(p.config(), p.joined)
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
				m.w.after(m.rng, time.Second, 3*time.Second, m.start) // like systemd
			}
		}
		p.clients.Wait()
	})
}

// begin returns the next process.
func (m *machine) begin() *process {
	m.proc = &process{m: m, dir: m.files(), killed: make(chan struct{}), alive: true, began: time.Now(), behind: map[*disk]bool{}, acked: map[*disk][]byte{}, waits: map[*disk]time.Time{}}
	m.w.trace.step(m.n, "starts")
	return m.proc
}

// config returns how a process uses its machine.
func (p *process) config() daemon.Config {
	m := p.m
	cfg := daemon.Config{
		HostID: m.hostID, Name: m.name(), RuntimeDir: p.dir, StateDir: p.dir,
		Keep: true, Linger: m.w.linger, Clock: clocktest.Clock{Rate: m.rate}, Logger: m.w.trace.logger(m.n),
		Machine: daemon.Machine{
			Wall:      func() time.Time { return time.Now().Add(m.skew) },
			MachineID: m.id, BootID: m.bootID(), Watchdog: p.openWatchdog, Fence: p.agent,
		},
	}
	p.opens(&cfg)
	if m.watchdog != nil {
		cfg.Watchdog = "simulated"
	}
	return cfg
}

// joined starts or attaches the clients.
func (p *process) joined(d *daemon.Host) {
	p.m.w.trace.step(p.m.n, "joined", int64(d.HostID()))
	p.m.w.standing.ends(p.m)
	if p.m.w.rules.current[p] != nil {
		p.m.w.standing.lost(p.m)
		p.m.w.rules.rejoined(p)
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

// retire copies the files of a process for the next one. The old process, which may still run,
// keeps its own, and shares those that its requests lock.
func (m *machine) retire(p *process) {
	p.alive = false
	m.proc = nil
	close(p.killed)
	for _, h := range p.keep {
		h.lets()
	}
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
		if strings.HasSuffix(e.Name(), ".disk") {
			if err := os.Link(filepath.Join(p.dir, e.Name()), filepath.Join(m.files(), e.Name())); err != nil {
				panic(err)
			}
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

// leave makes the machine leave permanently.
func (m *machine) leave() {
	m.gone = true
	if m.proc != nil {
		m.proc.svc.Drain()
	}
}

// restart ends bakeryd so that the next process can resume.
func (m *machine) restart() {
	if m.proc != nil {
		m.w.trace.step(m.n, "bakeryd is restarted")
		m.proc.cancel()
	}
}

// kill kills bakeryd and its mortal clients.
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

// powerCut ends the machine.
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
	if m.watchdog != nil {
		m.watchdog.stop()
	}
	for _, f := range m.list() {
		if !strings.HasSuffix(f, ".left") && !strings.Contains(f, ".events") { // /run is empty after a boot
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

// pause stops the machine, except its clocks.
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
