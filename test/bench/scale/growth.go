package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
)

// Point is how one bakeryd does in a lockspace of so many live hosts and so many locks, all of which it has used.
type Point struct {
	Hosts int `json:"hosts"`
	Locks int `json:"locks"`

	Acquire   Traffic `json:"acquire"`    // slots and directory, of acquire and release together, median
	AcquireUS float64 `json:"acquire_us"` // p50, on a disk without latency: what is not IO

	LeaseMS   int64   `json:"lease_ms"`
	Heartbeat Traffic `json:"heartbeat"`  // superblocks and host table, by L/6
	IdleOther Traffic `json:"idle_other"` // everything else that it asked for though nothing was wanted, by lease

	Memory     Memory `json:"memory"`
	Goroutines int    `json:"goroutines"`

	StatusMS    float64 `json:"status_ms"` // on a disk without latency
	StatusBytes int64   `json:"status_bytes"`
	StatusError string  `json:"status_error,omitempty"` // there is too much to read for one
}

// Memory is what a process takes. The disk is not in it.
type Memory struct {
	HeapBytes    int64 `json:"heap_bytes"`     // in use, after a collection
	BeforeBytes  int64 `json:"before_bytes"`   // the same, before bakeryd was started
	RSSBytes     int64 `json:"rss_bytes"`      // as the kernel sees it, before that collection
	RSSAnonBytes int64 `json:"rss_anon_bytes"` // the part that is not the program's file
}

func memoryNow() (m Memory) {
	m.RSSBytes, m.RSSAnonBytes = resident("/proc/self/status")
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.HeapBytes = int64(s.HeapAlloc + s.StackInuse)
	return m
}

// resident reads VmRSS and RssAnon of a /proc/PID/status.
func resident(path string) (rss, anon int64) {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			rss = kib << 10
		case "RssAnon:":
			anon = kib << 10
		}
	}
	return rss, anon
}

// acquisitions is how often a lock is acquired and released for one Point.
const acquisitions = 300

// Measure measures a Point. It wants a process of its own, so that the memory is that of one bakeryd.
func Measure(ctx context.Context, dir string, hosts, locks int, lease time.Duration) (p Point, err error) {
	p = Point{Hosts: hosts, Locks: locks, LeaseMS: lease.Milliseconds()}
	s, err := newSpace(dir, hosts, locks, lease)
	if err != nil {
		return p, err
	}
	defer s.close()
	if err := s.fill(); err != nil {
		return p, err
	}
	others, err := s.settle(2, hosts)
	if err != nil {
		return p, err
	}
	before := memoryNow().HeapBytes
	b, err := s.serve(ctx)
	if err != nil {
		return p, err
	}
	err = p.measure(ctx, b, locks, lease)
	p.Memory.BeforeBytes = before
	return p, errors.Join(err, b.end(), others.leave())
}

// measure fills in all but BeforeBytes.
func (p *Point) measure(ctx context.Context, b *bakeryd, locks int, lease time.Duration) error {
	for n := 1; n <= locks; n++ {
		if _, err := take(ctx, b.d, lockName(n)); err != nil {
			return err
		}
	}
	var times []time.Duration
	var asked []Traffic
	used := func() Traffic { return b.handle.traffic(slots).plus(b.handle.traffic(directory)) }
	for n := range acquisitions {
		before := used()
		took, err := take(ctx, b.d, lockName(1+n%locks))
		if err != nil {
			return err
		}
		times, asked = append(times, took), append(asked, used().minus(before))
	}
	p.Acquire = medianTraffic(asked)
	p.AcquireUS = float64(median(times).Nanoseconds()) / 1e3

	// From here on nothing is wanted of it: what is written of holds that lasted, and wakes up for that, is over.
	if err := sleep(ctx, lease/6); err != nil {
		return err
	}
	heart, all := b.handle.traffic(table), b.handle.total()
	if err := sleep(ctx, lease); err != nil {
		return err
	}
	beats := b.handle.traffic(table).minus(heart)
	p.IdleOther = b.handle.total().minus(all).minus(beats)
	p.Heartbeat = beats.by(6)
	p.Memory = memoryNow()
	p.Goroutines = runtime.NumGoroutine()

	p.status(b)
	return nil
}

// status times what bakeryctl status asks for.
func (p *Point) status(b *bakeryd) {
	var times []time.Duration
	read := b.handle.total().ReadBytes
	for begun := time.Now(); len(times) == 0 || len(times) < 10 && time.Since(begun) < time.Second; {
		from := time.Now()
		if _, err := b.d.Status(); err != nil {
			p.StatusError = err.Error()
			return
		}
		times = append(times, time.Since(from))
	}
	p.StatusBytes = (b.handle.total().ReadBytes - read) / int64(len(times))
	p.StatusMS = float64(median(times).Microseconds()) / 1e3
}

// by returns what was asked in each of n equal parts of a time. One request more or less at an end of that time does
// not count.
func (t Traffic) by(n int64) Traffic {
	part := func(count, bytes int64) (int64, int64) {
		if count == 0 {
			return 0, 0
		}
		c := (count + n/2) / n
		return c, bytes / count * c
	}
	var out Traffic
	out.Reads, out.ReadBytes = part(t.Reads, t.ReadBytes)
	out.Writes, out.WriteBytes = part(t.Writes, t.WriteBytes)
	return out
}

// medianTraffic is by each figure of its own. What the host did beside, now and then, is not in it.
func medianTraffic(all []Traffic) Traffic {
	of := func(figure func(Traffic) int64) int64 {
		var v []int64
		for _, t := range all {
			v = append(v, figure(t))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	return Traffic{
		of(func(t Traffic) int64 { return t.Reads }), of(func(t Traffic) int64 { return t.ReadBytes }),
		of(func(t Traffic) int64 { return t.Writes }), of(func(t Traffic) int64 { return t.WriteBytes }),
	}
}

// take acquires and releases a lock, and tells how long that took.
func take(ctx context.Context, d *daemon.Daemon, name string) (time.Duration, error) {
	from := time.Now()
	h, err := d.Acquire(ctx, daemon.Request{Name: name})
	if err == nil {
		err = h.Release()
	}
	return time.Since(from), err
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bakeryd is all that the command of that name is, the command apart.
type bakeryd struct {
	d      *daemon.Daemon
	handle *handle
	end    func() error
}

func (s *space) serve(ctx context.Context) (*bakeryd, error) {
	cfg, h, err := s.config(1, 0)
	if err != nil {
		return nil, err
	}
	cfg.Keep = true
	ln, err := daemon.Listen(filepath.Join(s.dir, "socket"))
	if err != nil {
		return nil, err
	}
	joined, over, served := make(chan *daemon.Daemon, 1), make(chan error, 1), make(chan error, 1)
	service := daemon.NewService(cfg, func(d *daemon.Daemon) { joined <- d })
	server := daemon.NewServer(cfg.Logger, service.Joined, service.Events())
	go func() { served <- server.Serve(ln) }()
	go func() { over <- service.Run(ctx) }()
	select {
	case d := <-joined:
		return &bakeryd{d: d, handle: h, end: func() error {
			service.Drain()
			return errors.Join(<-over, server.Shutdown(), <-served)
		}}, nil
	case err := <-over:
		return nil, fmt.Errorf("bakeryd ended: %w", err)
	}
}
