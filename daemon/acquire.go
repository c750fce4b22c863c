package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/layout"
)

// Request is what a client wants.
type Request struct {
	Name    string
	Mode    layout.Mode
	Try     bool   // ErrBusy rather than wait
	Permits int    // 1 to the number of hosts: what a new lock gets, and an old one must have; 0: 1, and any
	PID     int    // for people: who holds the lock
	Command string // for people: what for

	// OnWaiting, unless nil, is told how many stand before the client, and how many of this host wait.
	// It must not block.
	OnWaiting func(ahead, queued int)

	// OnRequest, unless nil, is told while the lock is held that somebody wants it (request.go): of every request
	// once, after a restart of bakeryd at least once. It must not block.
	OnRequest func(Requested)

	// Gone, unless nil, tells that the client has gone away though nobody has said so yet: a hold or a place
	// that it leaves behind does not make a lock busy. It must not block.
	Gone func() bool

	session *session // nil: it does not outlive bakeryd
	asked   uint64   // number of its event; 0: none, or not known
	remove  bool     // instead of a hold: the lock is to be removed when it is had
}

func (r *Request) gone() bool { return r.Gone != nil && r.Gone() }

func (r *Request) absent() bool { return r.session != nil && r.session.absent() }

// Hold is a lock held. It ends by Release, or when the lease is lost.
type Hold struct {
	lk       *lock
	req      Request
	token    layout.Ticket
	since    time.Time
	released chan struct{} // closed when the disk, or the next client, has the lock
	changes  uint64        // of the mode so far; guarded as changed is
	changed  chan struct{} // closed when the mode, req.Mode, changes; guarded by lk.mu as that is; nil: nobody has asked
	noted    bool          // that it is lost; under the lock's mu
	joined   bool          // beside a client's, by this host itself (mend.go): of no interest to people
	helps    bool          // the releaser's goroutine may do the IO
}

// Token is the fencing token of this grant.
func (h *Hold) Token() layout.Ticket { return h.token }

// Lost is closed when the lease was lost, and the lock with it.
func (h *Hold) Lost() <-chan struct{} { return h.lk.d.mem.lost }

// Err says why the lock was lost; nil while it is not.
func (h *Hold) Err() error {
	select {
	case <-h.Lost():
		return fmt.Errorf("%w: %w", api.ErrLeaseLost, h.lk.d.Err())
	default:
		return nil
	}
}

// Deadline is when the lock is lost if the lease is not renewed before.
func (h *Hold) Deadline() time.Time {
	left, _ := h.lk.d.mem.leaseLeft()
	return time.Now().Add(left)
}

// StopAt is when, on CLOCK_BOOTTIME, the holder is to stop if the lease is not renewed before.
func (h *Hold) StopAt() time.Duration {
	m := h.lk.d.mem.moments()
	if m.lost {
		return 0
	}
	return m.warn
}

// Grace is how long before the deadline the holder is to stop.
func (h *Hold) Grace() time.Duration { return h.lk.d.times().Grace() }

// Release ends the hold and returns when that is durable, or the next client
// has the lock, or the lease is lost. It may be called again. Who acquired the
// lock by a context that does not end does the IO, and waits for a device that
// hangs.
func (h *Hold) Release() error { return h.release("") }

// release notes why, unless the holder has simply let go.
func (h *Hold) release(why string) error {
	if h.goes(why) {
		if h.helps {
			h.lk.help(nil)
		} else {
			h.lk.signal()
		}
	}
	select {
	case <-h.released:
		return nil
	case <-h.Lost():
		return h.Err()
	}
}

// goes moves the hold to those that were let go; false if it was there.
func (h *Hold) goes(why string) bool {
	lk := h.lk
	lk.mu.Lock()
	defer lk.mu.Unlock()
	i := slices.Index(lk.holds, h)
	if i < 0 {
		return false
	}
	lk.holds = slices.Delete(lk.holds, i, i+1)
	lk.leaving = append(lk.leaving, h)
	now := time.Now()
	lk.noteExit(h, why, now)
	lk.countExit(h, now)
	if s := h.req.session; s != nil {
		s.keep(handover.Released, h.token, lk)
	}
	return true
}

// Acquire takes a lock, waiting for it until ctx is done. It returns
// ErrInvalid, ErrBusy, ErrFull, ErrPermits, ErrUnavailable, ErrDamaged, or the
// cause of ctx's end. With a context that does not end the IO is done by the
// caller's own goroutine where that is possible: it is faster, and does not
// return while the device hangs.
func (d *Daemon) Acquire(ctx context.Context, req Request) (h *Hold, err error) {
	if err := d.validate(&req); err != nil {
		return nil, err
	}
	var lk *lock
	began := time.Now()
	if req.asked == 0 {
		req.asked = d.note(req.event(events.Request))
	}
	defer func() { d.noteRefused(&req, lk, began, err) }()
	for try := 0; ; try++ {
		if try > 1 { // the directory may be of two minds
			select {
			case <-time.After(d.retry()):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		h, lk, err = d.acquireOnce(ctx, req)
		if !errors.Is(err, errSuperseded) {
			return h, err
		}
	}
}

func (d *Daemon) acquireOnce(ctx context.Context, req Request) (h *Hold, lk *lock, err error) {
	lk, err = d.find(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	w := newWaiter(req)
	if err = lk.admit(w); err == nil {
		helps := ctx.Done() == nil
		if helps {
			lk.help(w)
		} else {
			lk.signal()
		}
		if h, err = lk.await(ctx, w); h != nil {
			h.helps = helps
		}
	}
	if errors.Is(err, errSuperseded) {
		d.dir.forget(lk.entry)
	}
	return h, lk, err
}

// find is lock for a client, who does not wait for a device that hangs.
func (d *Daemon) find(ctx context.Context, req Request) (*lock, error) {
	if lk := d.inUse(req); lk != nil {
		return lk, nil
	}
	return patiently(ctx, d, func() (*lock, error) { return d.lock(ctx, req) })
}

// InUse returns a lock that is ready, or nil: then it may have to be looked for
// on the disk.
func (d *Daemon) inUse(req Request) *lock {
	e, ok := d.dir.remembered(req.Name)
	if !ok || agree(e, req.Permits) != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if lk := d.locks[e.Lock]; lk != nil && lk.entry == e && !lk.quarantined && !d.closing {
		return lk
	}
	return nil
}

// patiently does something for a client, who does not wait for a device that
// hangs. What the client leaves behind ends with its IO, for which closing the
// device waits.
func patiently[T any](ctx context.Context, d *Daemon, f func() (T, error)) (T, error) {
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
		if f.err != nil && d.stopping() {
			return nothing, errStopped // the device may be closed
		}
		return f.v, f.err
	case <-d.stop:
		return nothing, errStopped
	case <-ctx.Done():
		return nothing, context.Cause(ctx)
	case <-d.mem.lost:
		return nothing, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
}

func (d *Daemon) validate(req *Request) error {
	if err := layout.ValidateLockName(req.Name); err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	if req.Permits < 0 || req.Permits > d.sb.Geometry.Hosts {
		return fmt.Errorf("%w: permits %d, want 1 to %d, the hosts of the lockspace", api.ErrInvalid, req.Permits, d.sb.Geometry.Hosts)
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

// await waits for a client's turn.
func (lk *lock) await(ctx context.Context, w *waiter) (*Hold, error) {
	var err error
	select {
	case r := <-w.result:
		return r.hold, r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-lk.d.mem.lost: // the driver may wait for IO that hangs
		err = fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
	if lk.withdraw(w) {
		return nil, err
	}
	// Served in the very moment: the hold is given back.
	r := <-w.result
	if r.hold != nil {
		_ = r.hold.release("it came too late")
	}
	return nil, err
}
