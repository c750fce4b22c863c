package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// Acquire takes a lock and waits for it until ctx is done. It returns ErrInvalid, ErrBusy, ErrFull,
// ErrPermits, ErrUnavailable, ErrDamaged, or the cause of ctx's end. With a context that has no
// end, the caller's own goroutine does the IO where possible. That is faster, but blocks while the
// device hangs.
func (m *Manager) Acquire(ctx context.Context, req Request) (h *Hold, err error) {
	if err := m.validate(&req); err != nil {
		return nil, err
	}
	var q *queue.Queue
	began := time.Now()
	m.host.ReportRequest(&req)
	defer func() { m.host.ReportRefused(&req, q, began, err) }()
	err = m.withCurrent(ctx, func() (*Lock, error) { return m.Find(ctx, req) }, func(lk *Lock) error {
		h, q = lk.NewHold(req, ctx.Done() == nil), lk.Queue
		return h.Acquire(ctx)
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// withCurrent calls do with the lock that find returns, and again while its entry is superseded.
func (m *Manager) withCurrent(ctx context.Context, find func() (*Lock, error), do func(*Lock) error) error {
	for try := 0; ; try++ {
		if try > 1 && retry.Pause(ctx, m.disk.Retry()) != nil { // reads of the directory may disagree
			return context.Cause(ctx)
		}
		lk, err := find()
		if err == nil {
			if err = do(lk); errors.Is(err, driver.ErrSuperseded) {
				m.dir.Forget(lk.Entry)
			}
		}
		if !errors.Is(err, driver.ErrSuperseded) {
			return err
		}
	}
}

// Find returns the lock of a request, and creates it if needed. It does not wait for a device that
// hangs. It returns the errors of Acquire.
func (m *Manager) Find(ctx context.Context, req Request) (*Lock, error) {
	if lk := m.known(req); lk != nil {
		return lk, nil
	}
	return runDetached(ctx, m, func() (*Lock, error) { return m.lock(ctx, req) })
}

// known returns the lock if it is attached, or nil: then it may have to be read from the disk.
func (m *Manager) known(req Request) *Lock {
	e, ok := m.dir.Remembered(req.Name)
	if !ok || agree(e, req.Permits) != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if lk := m.locks[e.Lock]; lk != nil && lk.Entry == e && !lk.Quarantined && !m.Stopping() {
		return lk
	}
	return nil
}

// runDetached calls f for a client, which does not wait for a device that hangs. If the client stops
// waiting, f ends with its IO. Closing the device waits for that.
func runDetached[T any](ctx context.Context, m *Manager, f func() (T, error)) (T, error) {
	type found struct {
		v   T
		err error
	}
	out := make(chan found, 1)
	go func() {
		v, err := f()
		out <- found{v, err}
	}()
	var nothing T
	select {
	case f := <-out:
		if f.err != nil && m.host.Stopping() {
			return nothing, queue.ErrStopped // the device may be closed already
		}
		if errors.Is(f.err, api.ErrLeaseLost) && m.host.IsLost() {
			return nothing, m.host.Refusal()
		}
		return f.v, f.err
	case <-m.stop:
		return nothing, queue.ErrStopped
	case <-ctx.Done():
		return nothing, context.Cause(ctx)
	case <-m.mem.Lost():
		return nothing, m.host.Refusal()
	}
}

func (m *Manager) validate(req *Request) error {
	if err := layout.ValidateLockName(req.Name); err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	if req.Permits < 0 || req.Permits > m.disk.SB.Geometry.Hosts {
		return fmt.Errorf("%w: permits %d, want 1 to %d, the hosts of the lockspace", api.ErrInvalid, req.Permits, m.disk.SB.Geometry.Hosts)
	}
	if req.PID < 0 || req.PID > 1<<31-1 {
		return fmt.Errorf("%w: pid %d, want 0 to 2147483647", api.ErrInvalid, req.PID)
	}
	if req.Mode > layout.Shared {
		return fmt.Errorf("%w: %v", api.ErrInvalid, req.Mode)
	}
	req.Command = layout.TruncateCommand(req.Command)
	return nil
}

// Submit is Acquire for a caller that does not wait. decided is called once, by any goroutine, and
// must not block. If the lock is free, the caller's goroutine does the IO: Submit then blocks while
// the device hangs, but other goroutines report the end of ctx or of the lease in time.
func (m *Manager) Submit(ctx context.Context, req Request, decided func(*Hold, error)) {
	lk := m.known(req)
	if lk == nil || m.validate(&req) != nil {
		m.acquireApart(ctx, req, decided)
		return
	}
	m.host.ReportRequest(&req)
	began := time.Now()
	lk.Submit(ctx, req, func(h *Hold, err error) {
		if errors.Is(err, driver.ErrSuperseded) {
			m.dir.Forget(lk.Entry)
			m.acquireApart(ctx, req, decided)
			return
		}
		m.host.ReportRefused(&req, lk.Queue, began, err)
		if err != nil {
			h = nil
		}
		decided(h, err)
	})
}

// acquireApart is submit for a request that may have to wait for the directory.
func (m *Manager) acquireApart(ctx context.Context, req Request, decided func(*Hold, error)) {
	m.tasks.Go(func() { decided(m.Acquire(ctx, req)) })
}
