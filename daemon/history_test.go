package daemon

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/test/history"
)

// contention records the calls of one lock with one permit, for test/history. Its clock counts the
// calls: virtual time may stand still between two of them.
type contention struct {
	t *testing.T
	*history.Recorder
	clock, visits atomic.Int64
}

// contended fails the test at its end unless a correct lock may have granted the recorded calls.
func contended(t *testing.T) *contention {
	c := &contention{t: t, Recorder: history.New(1)}
	t.Cleanup(func() {
		h := c.Rest()
		t.Logf("%d visits", c.visits.Load())
		if err := h.Check(generous); err != nil {
			calls := h.Impossible()
			t.Errorf("%v; the last calls until it is wrong: %v", err, calls[max(0, len(calls)-10):])
		}
	})
	return c
}

func (c *contention) now() time.Duration { return time.Duration(c.clock.Add(1)) * time.Second }

// visit is a hold whose calls are recorded.
type visit struct {
	*locks.Hold
	c    *contention
	host int
}

// enter returns nil if the lock is refused, which fails the test.
func (c *contention) enter(d *Host, req locks.Request) *visit {
	asked := c.now()
	h, err := d.Acquire(c.t.Context(), req)
	if !assertNoError(c.t, err) {
		return nil
	}
	c.visits.Add(1)
	v := &visit{h, c, d.HostID()}
	v.add(history.Call{Kind: history.Acquire, Mode: req.Mode, Asked: asked, Answered: c.now()})
	return v
}

func (v *visit) add(call history.Call) {
	call.Host, call.Token = v.host, v.Token()
	v.c.Add(call)
}

// leave ends the visit before the lock is released.
func (v *visit) leave() bool {
	v.over()
	return assertNoError(v.c.t, v.Release())
}

func (v *visit) over() {
	now := v.c.now()
	v.add(history.Call{Kind: history.Release, Mode: v.Mode(), Asked: now, Answered: now})
}

// visit enters and leaves. It stays for a moment, so that an erroneous grant overlaps.
func (c *contention) visit(d *Host, name string) bool {
	v := c.enter(d, locks.Request{Name: name})
	if v == nil {
		return false
	}
	time.Sleep(100 * time.Microsecond)
	return v.leave()
}
