package locks

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/layout"
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
	*Hold
	c    *contention
	host int
}

// enter returns nil if the lock is refused, which fails the test.
func (c *contention) enter(d *testHost, req Request) *visit {
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

// change changes the mode.
func (v *visit) change(ctx context.Context, to layout.Mode) error {
	from, asked := v.Mode(), v.c.now()
	err := v.SetMode(ctx, to)
	if err == nil {
		v.add(history.Call{Kind: history.Change, Mode: to, From: from, Asked: asked, Answered: v.c.now()})
	}
	return err
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
