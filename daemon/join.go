package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// joinAgain is how often, and after what, a host without an id of its own
// tries another one when a process of the same machine was faster.
const (
	joinTries = 20
	joinAgain = 50 * time.Millisecond
)

// Join opens the device and joins the lockspace on it. It returns when locks
// can be taken, or ErrNoLockspace, ErrIDTaken, the reasons of package lease,
// the errors of [OpenLockspace], or the cause of ctx's end. After an error the
// daemon is closed.
func (d *Daemon) Join(ctx context.Context) error {
	dev, sb, copyUsed, err := d.cfg.open(d.cfg.Device, false)
	if err != nil {
		return err
	}
	if copyUsed != 0 {
		d.log.Warn("superblock is damaged, using its copy", "device", d.cfg.Device)
	}
	if d.cfg.HostID < 0 || d.cfg.HostID > sb.Geometry.Hosts {
		dev.Close()
		return fmt.Errorf("%w: host id %d, want 1 to %d, the hosts of the lockspace", ErrInvalid, d.cfg.HostID, sb.Geometry.Hosts)
	}
	d.dev, d.sb = dev, sb
	d.dir = newDirectory(dev, sb.Space())
	for try := 0; ; try++ {
		err = d.joinOnce(ctx)
		if !errors.Is(err, ErrIDTaken) || d.cfg.HostID != 0 || try == joinTries {
			break
		}
		select {
		case <-time.After(joinAgain):
		case <-ctx.Done():
		}
	}
	if err != nil {
		dev.Close()
		return fmt.Errorf("join the lockspace on %s: %w", d.cfg.Device, err)
	}
	d.drivers.Go(d.scrub)
	close(d.joined)
	return nil
}

func (d *Daemon) joinOnce(ctx context.Context) error {
	ids, err := newIdentity(d.cfg, d.sb.UUID)
	if err != nil {
		return err
	}
	d.mem, err = newMember(d.dev, d.sb, d.log, ids, d.cfg.HostID)
	if err != nil {
		return err
	}
	d.mem.event(d.mem.m.Start)
	select {
	case <-d.mem.ready:
		return nil
	case <-d.mem.over:
		err = d.mem.err()
	case <-ctx.Done():
		d.mem.leave()
		err = context.Cause(ctx)
	}
	d.mem.io.Wait()
	ids.release()
	return err
}

// scrub has every own slot looked at once a lease, and rewritten if it has
// gone bad: others wait for a slot that they cannot read, and only its owner
// may write it. Slots of removed locks count too.
func (d *Daemon) scrub() {
	t := time.NewTicker(lease.Times{Lease: d.sb.Lease}.Lease / 2)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-d.stop:
			return
		case <-d.mem.lost:
			return
		}
		s, err := d.dir.scan()
		if err != nil {
			d.log.Warn("reading the lock directory failed, retrying", "err", err)
			continue
		}
		for _, e := range append(s.entries, directoryEntry) {
			if !e.Virgin() {
				d.scrubOne(e)
			}
		}
	}
}

// scrubOne has the driver of a lock look at the own slot; a lock that is not
// in use gets one only if the slot is bad.
func (d *Daemon) scrubOne(e layout.Entry) {
	d.mu.Lock()
	lk := d.locks[e.Lock]
	d.mu.Unlock()
	if lk == nil {
		v, err := newArea(d.dev, d.sb.Space(), e.Lock, d.mem.id()).readOne(d.mem.id())
		if err != nil || v.Readable {
			return
		}
		if lk, err = d.attach(e); err != nil {
			return
		}
	}
	lk.mu.Lock()
	lk.scrub = true
	lk.signal()
	lk.mu.Unlock()
}

// stopping tells whether Close was called.
func (d *Daemon) stopping() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

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
	left := make(chan error, 1)
	go func() {
		d.drivers.Wait()
		d.mem.leave()
		d.mem.io.Wait()
		err := d.dev.Close() // waits for all other IO
		d.mem.ids.release()
		left <- err
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
	return d.sb.Lease + lease.Times{Lease: d.sb.Lease}.Grace()
}
