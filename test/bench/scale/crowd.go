package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// Crowd is what surrounds a lock that passes between the clients of one bakeryd.
type Crowd struct {
	Waiters int `json:"waiters"` // clients of this host that wait for the lock
	Locks   int `json:"locks"`   // other locks that clients of this host hold
	Hosts   int `json:"hosts"`
	Lookers int `json:"lookers"` // clients that follow the events and read the page's status every second
}

// Grant is the cost of a local grant in a crowd: a client requests the lock, waits, is granted it by
// the release of the client before it, and releases it. A session without a socket is a client.
type Grant struct {
	Crowd
	US    float64 `json:"us"`     // from one grant to the next
	CPUUS float64 `json:"cpu_us"` // processor time of the process, divided by the grants
	Lines float64 `json:"lines"`  // events that clients were sent, for each grant
}

// Crowds are those of a full run: each differs from the first one in one figure. A quick run has the
// first two.
var Crowds = []Crowd{
	{Waiters: 8, Locks: 1, Hosts: 2},
	{Waiters: 1, Locks: 1, Hosts: 2}, {Waiters: 64, Locks: 1, Hosts: 2}, {Waiters: 512, Locks: 1, Hosts: 2}, {Waiters: 2000, Locks: 1, Hosts: 2},
	{Waiters: 8, Locks: 100, Hosts: 2}, {Waiters: 8, Locks: 10000, Hosts: 2},
	{Waiters: 8, Locks: 1, Hosts: 16}, {Waiters: 8, Locks: 1, Hosts: 100},
	{Waiters: 8, Locks: 1, Hosts: 2, Lookers: 10}, {Waiters: 8, Locks: 1, Hosts: 2, Lookers: 100},
}

// MeasureGrant measures the grants in a crowd for a time. It needs a separate process.
func MeasureGrant(ctx context.Context, dir string, c Crowd, lasting time.Duration) (g Grant, err error) {
	g.Crowd = c
	s, err := newSpace(dir, c.Hosts, c.Locks+1, 30*time.Second)
	if err != nil {
		return g, err
	}
	defer s.close()
	if err := s.fill(); err != nil {
		return g, err
	}
	others, err := s.simulate(2, c.Hosts)
	if err != nil {
		return g, err
	}
	b, err := s.serve(ctx)
	if err != nil {
		return g, errors.Join(err, others.leave())
	}
	err = g.measure(ctx, b, lasting)
	return g, errors.Join(err, b.end(), others.leave())
}

func (g *Grant) measure(ctx context.Context, b *bakeryd, lasting time.Duration) error {
	for n := range g.Locks {
		h, err := b.d.Acquire(ctx, locks.Request{Name: lockName(n + 2)})
		if err != nil {
			return err
		}
		defer func() { _ = h.Release() }() // bakeryd's end reports a hold that remains
	}
	lookers, stop := b.look(ctx, g.Lookers)
	defer func() {
		stop()
		lookers.Wait()
	}()
	p := &passing{d: b.d, self: process.ID{PID: os.Getpid()}, ctx: ctx}
	var clients sync.WaitGroup
	for range g.Waiters + 1 { // one of them holds it
		clients.Go(p.client)
	}
	if err := sleep(ctx, lasting/2); err != nil { // all wait by then
		p.over.Store(true)
		return err
	}
	grants, lines, cpu, begun := p.grants.Load(), p.lines.Load(), processor(), time.Now()
	err := sleep(ctx, lasting)
	took, n := time.Since(begun), float64(p.grants.Load()-grants)
	g.US, g.CPUUS = float64(took.Nanoseconds())/1e3/n, float64((processor()-cpu).Nanoseconds())/1e3/n
	g.Lines = float64(p.lines.Load()-lines) / n
	p.over.Store(true)
	clients.Wait()
	if failed := p.failed.Load(); failed != nil {
		err = errors.Join(err, *failed)
	}
	return err
}

// processor returns the processor time of this process.
func processor() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // fails only for invalid arguments
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// passing is one lock that passes between clients.
type passing struct {
	d             *daemon.Host
	self          process.ID
	ctx           context.Context
	grants, lines atomic.Int64
	over          atomic.Bool
	failed        atomic.Pointer[error]
}

// client requests the lock, and releases it immediately, until the end.
func (p *passing) client() {
	sub := &subscriber{p: p, granted: make(chan *api.Event, 1)}
	by := session.Client{Peer: p.self, UID: os.Getuid(), May: func(string) error { return nil }}
	for !p.over.Load() {
		err := sub.once(by)
		if err != nil {
			p.failed.CompareAndSwap(nil, &err)
			return
		}
	}
}

// subscriber is the connection of a client.
type subscriber struct {
	p       *passing
	granted chan *api.Event // has room for one
}

func (s *subscriber) once(by session.Client) error {
	a, err := s.p.d.Sessions().Open(api.LockRequest{Name: lockName(1), Mode: layout.Exclusive}, by, s)
	if err != nil {
		return err
	}
	a.Start()
	e := <-s.granted
	if e.Kind != api.Granted {
		return fmt.Errorf("the lock was not granted: %s %s", e.Kind, e.Message)
	}
	s.p.grants.Add(1)
	_, err = a.Unlock(e.Token)
	return err
}

func (s *subscriber) Send(e *api.Event) {
	s.p.lines.Add(1)
	if e.Kind == api.Granted || e.Kind == api.Refused {
		s.granted <- e
	}
}

func (s *subscriber) Gone() bool      { return false }
func (s *subscriber) Listening() bool { return true }
func (s *subscriber) Close()          {}
