package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

// Close admits no more clients, waits until every hold is released, and leaves the lockspace. If
// holds remain when ctx is done, it returns the cause and does not leave: other hosts must continue
// to assume that this host holds its locks. It may then be called again. Once no hold remains, it
// waits for a member disk that hangs for as long as that needs, even if ctx is done before.
func (h *Host) Close(ctx context.Context) error {
	if err := h.Manager.Close(ctx); err != nil {
		return err
	}
	// If its lease was lost meanwhile, a lock is done before its holder is.
	if err := h.sessions.Unheld(ctx); err != nil {
		return err
	}
	// A grace for its copies, another one for the lease, then closing the set.
	if patience := 2*h.times().Grace() + lockspace.DefaultTimeout; endsWithin(ctx, patience) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
	}
	// If IO of a lockspace on one disk hangs, the lock file stays taken until it returns.
	return bounded(ctx, "leave the lockspace", func() error {
		h.Wait()
		h.mem.Leave()
		h.mem.Wait()
		h.mem.Unregister()
		return h.close()
	})
}

// endsWithin reports whether ctx has a deadline that is not later than in d.
func endsWithin(ctx context.Context, d time.Duration) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) <= d
}

// bounded returns the error of f, or the cause of ctx's end after what was to be done.
func bounded(ctx context.Context, what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}

// StopTimeout returns how long holders may take to stop when the host leaves. A wrapper kills its
// command when the last lease that it was sent is over, at most a lease from now. Then the end of
// the command must be reported.
func (h *Host) StopTimeout() time.Duration {
	return h.disk.SB.Lease + h.times().Grace()
}

// close frees the host's resources. It does not wait for a member disk that hangs: the next term, of this process
// or another one, uses that disk when its requests have returned, and writes no other entry of the directory
// before: [hostid.Options.KeepDisk].
func (h *Host) close() error {
	h.ending.End()
	h.sessions.Wait()
	h.Manager.WaitClients()
	h.tasks.Wait()
	err := h.disk.Dev.Close()
	switch {
	case err == nil, errors.Is(err, blockdev.ErrClosed):
	case errors.Is(err, mirror.ErrInFlight):
		h.log.Warn("member disk hangs, this host does not use it again until its requests have returned", "err", err)
		err = nil
	default: // a file whose server has ended; no request is in flight, and all writes were durable when they returned
		h.log.Warn("closing the device failed, continuing", "device", h.cfg.DeviceNames(), "err", err)
		err = nil
	}
	if h.handover != nil {
		if discarded := h.handover.Discard(); discarded != nil {
			h.log.Warn("removing the state for a restart failed", "err", discarded)
		}
	}
	h.ids.ReleaseLockFiles()
	return err
}

// Drained returns a channel that is closed when the holders must stop because the host leaves.
func (h *Host) Drained() <-chan struct{} { return h.ending.Drained }

// HandOver leaves all holds and places in queues for the next process, if there are any and the
// handover file has them all. The process must end after it.
func (h *Host) HandOver() bool { return h.sessions.HandOver() }

// giveUp closes a host whose lease was lost, once all holders have stopped and its IO has ended: that on
// several disks ends with a majority of them.
func (h *Host) giveUp(ctx context.Context) error {
	if err := h.sessions.Unheld(ctx); err != nil {
		return err
	}
	return bounded(ctx, "IO on the device is still under way", func() error {
		h.Wait()
		h.mem.Wait()
		return h.close()
	})
}
