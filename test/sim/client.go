package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// client is a program on a host that takes locks, during one term of its bakeryd. Unless it is
// mortal, it outlives bakeryd's process and comes back to the next one.
type client struct {
	w    *world
	m    *machine
	p    *process
	d    *daemon.Host
	rng  *rand.Rand
	id   int // unique
	n    int // within its host
	boot int // boot of the machine
	life context.Context
	end  context.CancelFunc
	ctx  context.Context // ends with the term, the process or the client
	stop context.CancelFunc

	mortal  bool
	session *session // not over for bakeryd; nil if none
	back    chan arrival
}

// subject is a lock that clients take.
type subject struct {
	name    string
	permits int
	removed bool // clients remove it
	shared  bool // in either mode
	valued  bool // has a value
}

var subjects = []subject{
	{name: "plain", permits: 1},
	{name: "shared", permits: 1, shared: true, valued: true},
	{name: "two", permits: 2, shared: true},
	{name: "brief", permits: 1, shared: true, removed: true},
}

func newClient(p *process, d *daemon.Host, n int) *client {
	w := p.m.w
	w.born++
	c := &client{w: w, m: p.m, n: n, id: w.born, rng: w.random("client", w.born), back: make(chan arrival, 1)}
	c.mortal = c.rng.IntN(2) == 0
	c.life, c.end = context.WithCancel(context.Background())
	w.tasks.Go(func() {
		select {
		case <-w.over:
			c.end()
		case <-c.life.Done():
		}
	})
	c.attach(arrival{p, d})
	return c
}

// attach moves the client to a term.
func (c *client) attach(a arrival) {
	c.p, c.d, c.boot = a.p, a.d, c.m.boots
	ctx, stop := context.WithCancel(c.life)
	c.ctx, c.stop = ctx, stop
	c.w.tasks.Go(func() {
		select {
		case <-a.p.killed:
		case <-a.d.Lost():
		case <-ctx.Done():
		}
		stop()
	})
}

// run works until the term is over, and in the next term if the client comes back.
func (c *client) run() {
	defer c.end()
	c.works()
	for c.comesBack(nil) {
		c.settle()
		c.works()
	}
}

// works uses locks until the term is over or all faults have ended, then takes each lock once.
func (c *client) works() {
	defer func() {
		c.stop()
		if !c.left() { // the term is over, but not the run
			c.release()
		}
	}()
	if s := c.w.standing; s != nil && !s.exempt(c.m) {
		c.probe()
		return
	}
	for c.pause(time.Duration(c.rng.Int64N(int64(c.w.think)))) && !c.w.calm() {
		c.work()
	}
	if c.n != 0 {
		return
	}
	for _, s := range subjects {
		if !c.takesAtLast(s) {
			return
		}
	}
	c.w.rules.served(c.m)
}

// pause waits, and returns false if the client must end.
func (c *client) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.w.calmed:
	case <-c.ctx.Done():
		return false
	}
	return c.runs()
}

// runs waits until the machine runs, and returns false if the client must end.
func (c *client) runs() bool {
	select {
	case <-c.m.running:
		return c.ctx.Err() == nil
	case <-c.ctx.Done():
		return false
	}
}

// work does one of the things that clients do.
func (c *client) work() {
	s := subjects[c.rng.IntN(len(subjects))]
	if s.removed && c.rng.IntN(6) == 0 {
		ctx, cancel := context.WithTimeout(c.ctx, c.w.sb.Lease)
		defer cancel()
		c.w.trace.step(c.m.n, "removes "+s.name)
		if c.d.Remove(ctx, s.name, c.rng.IntN(2) == 0) == nil {
			c.w.count("lock removed")
		}
		return
	}
	req := locks.Request{Name: s.name, Permits: s.permits, Try: c.rng.IntN(8) == 0, Mode: c.mode(s)}
	ctx, cancel := c.patience(), context.CancelFunc(func() {})
	if c.rng.IntN(5) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.rng.Int64N(int64(c.w.sb.Lease))))
	}
	defer cancel()
	c.take(ctx, s, req, c.length())
	if c.w.linger > 0 && c.rng.IntN(3) == 0 {
		c.burst(s)
	}
}

// burst takes a lock again and again, with pauses that a host may linger for.
func (c *client) burst(s subject) {
	for range c.rng.IntN(60) {
		if !c.pause(time.Duration(c.rng.Int64N(int64(c.w.linger/4)))) || c.w.calm() {
			return
		}
		req := locks.Request{Name: s.name, Permits: s.permits, NoLinger: c.rng.IntN(16) == 0}
		if c.take(c.ctx, s, req, time.Duration(c.rng.Int64N(int64(c.w.linger/4)))) != nil {
			return
		}
	}
}

func (c *client) mode(s subject) layout.Mode {
	if s.shared && c.rng.IntN(5) < 3 {
		return layout.Shared
	}
	return layout.Exclusive
}

// length draws how long to hold a lock: usually briefly.
func (c *client) length() time.Duration {
	l := int64(c.w.sb.Lease)
	if c.w.standing != nil {
		return time.Duration(c.rng.Int64N(l / 5))
	}
	switch c.rng.IntN(10) {
	case 0:
		return time.Duration(c.rng.Int64N(2 * l))
	case 1, 2, 3:
		return time.Duration(c.rng.Int64N(l / 5))
	}
	return time.Duration(c.rng.Int64N(l / 50))
}

// take takes a lock, uses it for length, and releases it.
func (c *client) take(ctx context.Context, s subject, req locks.Request, length time.Duration) error {
	asked := c.w.now()
	held, err := c.acquire(ctx, req)
	if err != nil {
		if !expected(err) {
			c.w.rules.violate("ANSWER", "m%d: Acquire(%+v): %v", c.m.n, req.Name, err)
		}
		return err
	}
	if !c.runs() {
		return context.Canceled
	}
	if !time.Now().Before(held.Deadline()) || held.Err() != nil { // like the wrapper
		c.release()
		return api.ErrLeaseLost
	}
	h := c.w.rules.enter(c, s, held, asked)
	c.use(h, length)
	c.w.rules.leave(h)
	if c.ctx.Err() == nil || c.d.Err() != nil {
		c.release()
	}
	return nil
}

// expected reports whether a client has to expect the error.
func expected(err error) bool {
	for _, e := range []error{context.Canceled, context.DeadlineExceeded, api.ErrBusy, api.ErrUnavailable,
		api.ErrLeaseLost, api.ErrUpgrade, api.ErrUnreadable, api.ErrDamaged, api.ErrNoLock, api.ErrStuck, api.ErrInFlight, api.ErrIntended,
		api.ErrLost} {
		if errors.Is(err, e) {
			return true
		}
	}
	return ioError(err)
}

// use is the work under a lock.
func (c *client) use(h *hold, length time.Duration) {
	guarded := c.w.resource(h.subject.name)
	exclusive := h.mode == layout.Exclusive && h.subject.permits == 1
	var read int
	if exclusive {
		read = guarded.read(h)
	}
	if !c.stay(h, length/2) {
		return
	}
	if h.subject.valued && exclusive && c.rng.IntN(3) == 0 {
		c.value(h)
	}
	switch change := c.rng.IntN(6); {
	case change == 0 && h.mode == layout.Exclusive && h.subject.permits == 1 && h.subject.shared:
		guarded.write(h, read)
		c.changes(h, layout.Shared)
		c.stay(h, length/2)
		return
	case change < 2 && h.mode == layout.Shared && h.subject.permits == 1:
		c.changes(h, layout.Exclusive)
	}
	if c.stay(h, length/2) && exclusive {
		guarded.write(h, read)
	}
}

// stay waits under the lock, and returns false if the holder must stop.
func (c *client) stay(h *hold, length time.Duration) bool {
	end := time.Now().Add(length)
	for {
		left := time.Until(h.held.Deadline())
		if h.obeys { // SIGTERM
			left -= h.held.Grace()
		}
		until := min(time.Until(end), c.m.lasts(left))
		if until <= 0 {
			return c.runs() && h.held.Err() == nil && left > 0
		}
		t := time.NewTimer(until)
		select {
		case <-t.C:
		case <-h.held.Lost():
			t.Stop()
			return false
		case <-c.toStop(h):
			t.Stop()
			return false
		case <-c.ctx.Done():
			t.Stop()
			if !c.returns(h, time.Now().Add(until)) {
				return false
			}
		}
	}
}

func (c *client) changes(h *hold, mode layout.Mode) {
	if mode == layout.Shared { // others may enter immediately
		c.w.rules.mode(h, mode)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.w.sb.Lease/4)
	defer cancel()
	err := h.held.SetMode(ctx, mode)
	switch {
	case err == nil && c.runs():
		if mode == layout.Exclusive {
			c.w.rules.mode(h, mode)
		}
	case err != nil && !expected(err):
		c.w.rules.violate("ANSWER", "m%d: SetMode: %v", c.m.n, err)
	}
}

// value reads the value of an exclusively held lock, and writes another one.
func (c *client) value(h *hold) {
	ctx, cancel := context.WithTimeout(c.ctx, c.w.sb.Lease/2)
	defer cancel()
	v, err := c.d.Value(ctx, h.subject.name)
	if err == nil && c.runs() {
		c.w.rules.valueRead(h, v)
	}
	text := fmt.Sprint("by ", h.token)
	c.w.rules.valueBegun(h, text)
	if err = h.held.SetValue(ctx, []byte(text)); err == nil && c.runs() {
		c.w.rules.valueSet(h, text)
	}
}

// takesAtLast takes a lock after all faults have ended.
func (c *client) takesAtLast(s subject) bool {
	for c.runs() {
		err := c.take(c.patience(), s, locks.Request{Name: s.name, Permits: s.permits}, c.w.sb.Lease/100)
		if err == nil {
			return true
		}
		c.w.trace.step(c.m.n, fmt.Sprint("not yet: ", err))
		if !c.wait(c.w.sb.Lease / 10) {
			return false
		}
	}
	return false
}

func (c *client) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}
