package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Close lets nobody in any more, waits until every hold was released, and
// leaves the lockspace. If holds are left when ctx is done it returns the
// cause of that, and does not leave: others must go on thinking that this
// host holds its locks. It may then be called again.
func (d *Daemon) Close(ctx context.Context) error {
	d.mu.Lock()
	if !d.closing {
		d.closing = true
		close(d.stop)
	}
	locks := make([]*lock, 0, len(d.locks))
	for _, lk := range d.locks {
		locks = append(locks, lk)
	}
	d.mu.Unlock()
	for _, lk := range locks {
		lk.refuse(errStopped, func(*waiter) bool { return true })
		lk.mu.Lock()
		lk.signal()
		lk.mu.Unlock()
	}
	for _, lk := range locks {
		select {
		case <-lk.done:
		case <-ctx.Done():
			return fmt.Errorf("lock %q is still held: %w", lk.entry.Name, context.Cause(ctx))
		}
	}
	// A lock whose lease was lost meanwhile is done before its holder is.
	if err := d.sessions.unheld(ctx); err != nil {
		return err
	}
	left := make(chan error, 1)
	go func() {
		d.drivers.Wait()
		d.mem.leave()
		d.mem.io.Wait()
		d.fencing.leave()
		left <- d.close()
	}()
	select {
	case err := <-left:
		return err
	case <-ctx.Done(): // IO that hangs; the lock file stays taken until it returns
		return fmt.Errorf("leave the lockspace: %w", context.Cause(ctx))
	}
}

// StopTimeout is how long holders are given to stop when the host leaves. A
// wrapper kills a command that does not when the lease it last heard of is
// over, at most a lease from now; then its end has to come through.
func (d *Daemon) StopTimeout() time.Duration {
	return d.sb.Lease + d.times().Grace()
}

// drain tells every holder that its lock is about to go, as if it were lost,
// and why: the host cannot leave before they have stopped.
func (d *Daemon) drain(why string) {
	d.drainedFor = why
	close(d.drained)
}

// close gives back what the daemon has open, once no IO is under way.
func (d *Daemon) close() error {
	d.endOnce.Do(func() { close(d.ended) })
	d.sessions.tasks.Wait()
	d.tasks.Wait()
	err := d.dev.Close() // waits for all IO
	if j := d.sessions.journal; j != nil {
		if discarded := j.Discard(); discarded != nil {
			d.log.Warn("removing the state that was kept for a restart failed", "err", discarded)
		}
	}
	d.ids.Release()
	return err
}

// HandOver leaves all as it stands for a successor, if there is anything to
// leave and it is known to one. The process must end then. What is just about
// to end is waited for.
func (d *Daemon) HandOver() bool {
	if j := d.sessions.journal; j == nil || !j.Intact() {
		return false
	}
	for give := time.Now().Add(handOverPause); ; {
		all, changed := d.sessions.list()
		if len(all) == 0 {
			return false
		}
		staying := func(s *session) bool { return !s.gone() }
		if slices.ContainsFunc(all, staying) || time.Now().After(give) {
			return true
		}
		select {
		case <-changed:
		case <-time.After(killPause):
		}
	}
}

// handOverPause is how long is waited for clients that are gone.
const handOverPause = time.Second

// giveUp ends a daemon whose lease was lost: when all holders are gone, and no
// IO is under way by which it could still write.
func (d *Daemon) giveUp(ctx context.Context) error {
	if err := d.sessions.unheld(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		d.drivers.Wait()
		d.mem.io.Wait()
		done <- d.close()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("IO on the device is still under way: %w", context.Cause(ctx))
	}
}
