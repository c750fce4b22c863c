package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Close admits no more clients, waits until every hold is released, and leaves the lockspace. If
// holds remain when ctx is done, it returns the cause and does not leave: other hosts must continue
// to assume that this host holds its locks. It may then be called again.
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
	// If its lease was lost meanwhile, a lock is done before its holder is.
	if err := d.sessions.unheld(ctx); err != nil {
		return err
	}
	left := make(chan error, 1)
	go func() {
		d.drivers.Wait()
		d.mem.Leave()
		d.mem.Wait()
		d.fencing.Leave()
		left <- d.close()
	}()
	select {
	case err := <-left:
		return err
	case <-ctx.Done(): // IO hangs; the lock file stays taken until it returns
		return fmt.Errorf("leave the lockspace: %w", context.Cause(ctx))
	}
}

// StopTimeout returns how long holders may take to stop when the host leaves. A wrapper kills its
// command when the last lease that it was sent is over, at most a lease from now. Then the end of
// the command must be reported.
func (d *Daemon) StopTimeout() time.Duration {
	return d.sb.Lease + d.times().Grace()
}

// drain notifies every holder that its lock is about to be released, as if it were lost, and why.
// The host cannot leave before all have stopped.
func (d *Daemon) drain(why string) {
	d.drainedFor = why
	close(d.drained)
}

// close frees the daemon's resources once no IO is in flight.
func (d *Daemon) close() error {
	d.endOnce.Do(func() { close(d.ended) })
	d.sessions.tasks.Wait()
	d.tasks.Wait()
	err := d.dev.Close() // waits for all IO
	if j := d.sessions.journal; j != nil {
		if discarded := j.Discard(); discarded != nil {
			d.log.Warn("removing the state for a restart failed", "err", discarded)
		}
	}
	d.ids.ReleaseLockFiles()
	return err
}

// HandOver leaves all holds and places in queues for the next process, if there are any and the
// handover file has them all. The process must end after it. HandOver waits up to handOverPause for
// sessions that are about to end.
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

// handOverPause limits the wait for clients that have gone away.
const handOverPause = time.Second

// giveUp closes a daemon whose lease was lost, once all holders have stopped and no IO is in flight
// that could still write.
func (d *Daemon) giveUp(ctx context.Context) error {
	if err := d.sessions.unheld(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		d.drivers.Wait()
		d.mem.Wait()
		done <- d.close()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("IO on the device is still under way: %w", context.Cause(ctx))
	}
}
