package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// arrival is the start of a term, in which clients work.
type arrival struct {
	p *process
	d *daemon.Host
}

// session is a client's request or hold. It outlives bakeryd.
type session struct {
	id    string
	req   locks.Request
	token layout.Ticket // 0: no known grant
	kept  *sessionHold  // nil: it waits
}

// patience returns the context of a request, which may outlive bakeryd.
func (c *client) patience() context.Context {
	if c.mortal {
		return c.ctx
	}
	return c.life
}

func (c *client) ask(ctx context.Context, token layout.Ticket) (*sessionHold, error) {
	return acquireInProcess(ctx, c.d, c.session.req, inProcess{session: c.session.id, token: token, dead: c.mortal && token == 0, killed: c.p.killed})
}

// acquire asks for a lock, and again if bakeryd dies and is restarted.
func (c *client) acquire(ctx context.Context, req locks.Request) (*locks.Hold, error) {
	c.session = &session{id: fmt.Sprintf("%016x%016x", c.rng.Uint64(), c.rng.Uint64()), req: req}
	for {
		kept, err := c.ask(ctx, 0)
		switch {
		case err == nil:
			c.session.token, c.session.kept = kept.Token(), kept
			return kept.Hold, nil
		case !c.left():
			c.session = nil
			return nil, err
		case !c.comesBack(ctx.Done()):
			return nil, err // settle handles it later
		}
		c.w.count("came back to wait")
	}
}

// release releases the result of acquire, unless it is over.
func (c *client) release() {
	if c.session != nil && c.session.kept != nil {
		c.session.kept.hangUp()
	}
	c.session = nil
}

// left reports whether the client's bakeryd has ended.
func (c *client) left() bool {
	select {
	case <-c.p.killed:
		return true
	default:
		return false
	}
}

// comesBack waits until the machine's next bakeryd has joined. It returns false if the client ends
// with the old one, or if the machine or until ends first.
func (c *client) comesBack(until <-chan struct{}) bool {
	m := c.m
	if c.mortal || !c.left() || !m.up || m.boots != c.boot || m.away[c.n] != nil {
		return false
	}
	m.away[c.n] = c
	resume := c.w.standing.interrupted(c)
	defer func() {
		if m.away[c.n] == c {
			delete(m.away, c.n)
		}
	}()
	select {
	case a := <-c.back:
		c.attach(a)
		resume()
		return c.runs() || c.left() && c.comesBack(until)
	case <-m.off:
		c.end()
	case <-until:
	case <-c.life.Done():
	}
	return false
}

// returns resumes a hold after a restart. It returns false if the holder must stop before that.
// Until then the holder continues, because it knows its deadline.
func (c *client) returns(h *hold, until time.Time) bool {
	if c.session == nil || !c.left() {
		return false
	}
	ctx, cancel := context.WithDeadline(c.life, until)
	defer cancel()
	for c.comesBack(ctx.Done()) {
		kept, err := c.ask(c.life, h.token)
		switch {
		case err == nil:
			c.session.kept, h.held, h.p = kept, kept.Hold, c.p
			c.w.rules.returned(h)
			return c.runs()
		case !c.left():
			c.session = nil
			c.w.rules.refused(h, err)
			return false
		}
	}
	return false
}

// settle ends what the client did when bakeryd died.
func (c *client) settle() {
	if c.session == nil {
		return
	}
	ctx, cancel := context.WithCancel(c.life)
	cancel()
	kept, err := c.ask(ctx, c.session.token)
	if err == nil {
		kept.hangUp()
	} else if !expected(err) {
		c.w.rules.violate("ANSWER", "m%d: coming back to %s: %v", c.m.n, c.session.req.Name, err)
	}
	if !c.left() {
		c.session = nil
	}
}

// toStop is closed when a holder must stop that stops when asked.
func (c *client) toStop(h *hold) <-chan struct{} {
	if c.session == nil || !h.obeys {
		return nil
	}
	return c.session.kept.drained
}

// returned checks a hold that its client has resumed.
func (r *rules) returned(h *hold) {
	r.w.count("came back to hold")
	r.w.trace.step(h.m.n, "comes back to "+h.subject.name, int64(h.token))
	if h.p.alive && r.current[h.p] != h.lease {
		r.violate("RESTART", "m%d has %s by token %d still, and its lease is another one", h.m.n, h.subject.name, h.token)
	}
	if mode := h.held.Mode(); mode != h.mode { // a change was in progress
		r.mode(h, mode)
	}
}

// refused checks that a client that cannot resume its hold must stop.
func (r *rules) refused(h *hold, err error) {
	r.w.trace.step(h.m.n, fmt.Sprint("cannot come back to ", h.subject.name, ": ", err), int64(h.token))
	if errors.Is(err, api.ErrLost) && r.current[h.c.p] == h.lease && h.c.d.Err() == nil {
		r.violate("RESTART", "m%d is back within its lease, and does not have %s by token %d any more: %v", h.m.n, h.subject.name, h.token, err)
	}
}
