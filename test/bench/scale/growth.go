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
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/server"
)

// Point describes one bakeryd in a lockspace with a number of live hosts and of locks, all of which
// it has used.
type Point struct {
	Hosts int `json:"hosts"`
	Locks int `json:"locks"`

	Acquire   Traffic `json:"acquire"`    // slots and directory, acquire and release together, median
	AcquireUS float64 `json:"acquire_us"` // median on a disk without latency: the part that is not IO

	LeaseMS   int64   `json:"lease_ms"`
	Heartbeat Traffic `json:"heartbeat"`  // superblocks and host table, per L/6
	IdleOther Traffic `json:"idle_other"` // all other requests of an idle host, per lease

	Memory     Memory `json:"memory"`
	Goroutines int    `json:"goroutines"`

	StatusMS    float64 `json:"status_ms"` // on a disk without latency
	StatusBytes int64   `json:"status_bytes"`
	StatusError string  `json:"status_error,omitempty"` // the answer would be too large
}

// Memory is the memory of a process, without the disk.
type Memory struct {
	HeapBytes    int64 `json:"heap_bytes"`     // in use after a collection
	BeforeBytes  int64 `json:"before_bytes"`   // the same before bakeryd was started
	RSSBytes     int64 `json:"rss_bytes"`      // according to the kernel, before that collection
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

// acquisitions is how often a lock is acquired and released for a Point.
const acquisitions = 300

// Measure measures a Point. It needs a separate process, so that the memory is that of one bakeryd.
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
	others, err := s.simulate(2, hosts)
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

// measure sets all fields except BeforeBytes.
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

	// The host is idle from here on: writes and wake-ups because of long holds are over.
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

// status measures the request of bakeryctl status.
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

// by returns the requests in each of n equal parts of a time. One request at the edge of a part may
// be missing or extra.
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

// medianTraffic returns the median of each figure, and so excludes rare other requests.
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

// take acquires and releases a lock, and returns the time that it took.
func take(ctx context.Context, d *daemon.Host, name string) (time.Duration, error) {
	from := time.Now()
	h, err := d.Acquire(ctx, locks.Request{Name: name})
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

// bakeryd is the code of the command bakeryd without its main package.
type bakeryd struct {
	d      *daemon.Host
	handle *handle
	socket string
	end    func() error
}

func (s *space) serve(ctx context.Context) (*bakeryd, error) {
	cfg, h, err := s.config(1, 0)
	if err != nil {
		return nil, err
	}
	cfg.Keep = true
	socket := filepath.Join(s.dir, "socket")
	ln, err := server.Listen(socket)
	if err != nil {
		return nil, err
	}
	joined, over, served := make(chan *daemon.Host, 1), make(chan error, 1), make(chan error, 1)
	service := daemon.NewService(cfg, func(d *daemon.Host) { joined <- d })
	server := server.New(server.Config{Host: service.Serving, Log: cfg.Logger, Events: service.Events()})
	go func() { served <- server.Serve(ln) }()
	go func() { over <- service.Run(ctx) }()
	select {
	case d := <-joined:
		return &bakeryd{d: d, handle: h, socket: socket, end: func() error {
			service.Drain()
			return errors.Join(<-over, server.Shutdown(), <-served)
		}}, nil
	case err := <-over:
		return nil, fmt.Errorf("bakeryd ended: %w", err)
	}
}
