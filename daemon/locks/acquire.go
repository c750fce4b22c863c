package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/layout"
)

// Hold is one request of a client: it waits for the lock, then it holds it. It ends by Release, or
// when the lease is lost.
type Hold struct {
	queue.Item
	lk    *Lock
	helps bool // the client's goroutine may do the IO
}

// newHold returns a request that is not in the queue yet. decided, unless nil, is called with its
// outcome.
func (lk *Lock) newHold(req Request, decided func(error)) *Hold {
	h := &Hold{lk: lk}
	h.Init(lk.q, req, decided)
	return h
}

// acquire queues the request and blocks until it is served or refused, or ctx ends. The driver does
// the IO.
func (h *Hold) acquire(ctx context.Context) error {
	if err := h.lk.q.Admit(&h.Item); err != nil {
		return err
	}
	h.lk.q.Signal()
	return h.await(ctx)
}

// Lock returns the lock that is held.
func (h *Hold) Lock() *Lock { return h.lk }

// Lost returns a channel that is closed when the lease, and with it the lock, is lost.
func (h *Hold) Lost() <-chan struct{} { return h.lk.mgr.mem.Lost() }

// Err returns the reason why the lock was lost, nil if it was not.
func (h *Hold) Err() error {
	select {
	case <-h.Lost():
		return fmt.Errorf("%w: %w", api.ErrLeaseLost, h.lk.mgr.mem.Err())
	default:
		return nil
	}
}

// Deadline returns the time at which the lock is lost unless the lease is renewed.
func (h *Hold) Deadline() time.Time {
	left, _ := h.lk.mgr.mem.LeaseLeft()
	return time.Now().Add(left)
}

// StopAt returns the time on CLOCK_BOOTTIME at which the holder must begin to stop unless the lease
// is renewed. It returns 0 if the lease is lost.
func (h *Hold) StopAt() time.Duration {
	m := h.lk.mgr.mem.Moments()
	if m.Lost {
		return 0
	}
	return m.Warn
}

// Grace returns the time between StopAt and the deadline.
func (h *Hold) Grace() time.Duration { return h.lk.mgr.disk.Times().Grace() }

// Release ends the hold. It blocks until the release is durable, the next client has the lock, or
// the lease is lost. It may be called more than once. If the lock was acquired with a context that
// has no end, the caller's goroutine does the IO and blocks while the device hangs.
func (h *Hold) Release() error { return h.ReleaseBecause("") }

// ReleaseBecause ends the hold. why is the reason for the event, empty if the holder released it.
func (h *Hold) ReleaseBecause(why string) error {
	if h.lk.q.Release(&h.Item, why) {
		if h.helps {
			h.lk.runInline(nil)
		} else {
			h.lk.q.Signal()
		}
	}
	select {
	case <-h.Released():
		return nil
	case <-h.Lost():
		return h.Err()
	}
}

// Acquire takes a lock and waits for it until ctx is done. It returns ErrInvalid, ErrBusy, ErrFull,
// ErrPermits, ErrUnavailable, ErrDamaged, or the cause of ctx's end. With a context that has no
// end, the caller's own goroutine does the IO where possible. That is faster, but blocks while the
// device hangs.
func (m *Manager) Acquire(ctx context.Context, req Request) (h *Hold, err error) {
	if err := m.validate(&req); err != nil {
		return nil, err
	}
	var lk *Lock
	began := time.Now()
	m.clients.ReportRequest(&req)
	defer func() { m.clients.ReportRefused(&req, lk.clients(), began, err) }()
	for try := 0; ; try++ {
		if try > 1 { // reads of the directory may disagree
			select {
			case <-time.After(m.disk.Retry()):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		h, lk, err = m.acquireOnce(ctx, req)
		if !errors.Is(err, errSuperseded) {
			return h, err
		}
	}
}

func (m *Manager) acquireOnce(ctx context.Context, req Request) (h *Hold, lk *Lock, err error) {
	lk, err = m.Find(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	h = lk.newHold(req, nil)
	h.helps = ctx.Done() == nil
	if err = lk.q.Admit(&h.Item); err == nil {
		if h.helps {
			lk.runInline(&h.Item)
		} else {
			lk.q.Signal()
		}
		err = h.await(ctx)
	}
	if errors.Is(err, errSuperseded) {
		m.dir.Forget(lk.Entry)
	}
	if err != nil {
		return nil, lk, err
	}
	return h, lk, nil
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
	if lk := m.locks[e.Lock]; lk != nil && lk.Entry == e && !lk.quarantined && !m.closing {
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
		if f.err != nil && m.Stopping() {
			return nothing, queue.ErrStopped // the device may be closed already
		}
		return f.v, f.err
	case <-m.stop:
		return nothing, queue.ErrStopped
	case <-ctx.Done():
		return nothing, context.Cause(ctx)
	case <-m.mem.Lost():
		return nothing, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
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

// await blocks until the client is served or refused, or ctx ends.
func (h *Hold) await(ctx context.Context) error {
	var err error
	select {
	case err := <-h.Result():
		return err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-h.Lost(): // the driver may wait for IO that hangs
		err = fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
	if !h.lk.q.Withdraw(&h.Item) && <-h.Result() == nil {
		// The client was served at this moment: release the hold.
		_ = h.ReleaseBecause("the client was gone when the lock was granted")
	}
	return err
}

// clients returns the queue of a lock, nil if there is no lock.
func (lk *Lock) clients() *queue.Queue {
	if lk == nil {
		return nil
	}
	return lk.q
}
