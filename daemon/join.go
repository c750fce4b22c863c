package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/membership"
)

// If a process of the same machine has just taken the id, a host without a configured id tries
// another one. It tries joinTries times, with a pause of joinAgain.
const (
	joinTries = 20
	joinAgain = 50 * time.Millisecond
)

// Join opens the device and joins the lockspace on it, or continues the term of a previous process.
// It returns when locks can be acquired. It returns ErrNoLockspace, ErrTaken, the reasons of
// package lease, the errors of [OpenLockspace], or the cause of ctx's end. After an error the
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
		return fmt.Errorf("%w: host id %d, want 1 to %d, the hosts of the lockspace", api.ErrInvalid, d.cfg.HostID, sb.Geometry.Hosts)
	}
	d.use(dev)
	d.sb = sb
	d.dir = newDirectory(dev, sb.Space())
	for try := 0; ; try++ {
		err = d.joinOnce(ctx)
		if !errors.Is(err, hostid.ErrTaken) || d.cfg.HostID != 0 || try == joinTries {
			break
		}
		select {
		case <-time.After(joinAgain):
		case <-ctx.Done():
		}
	}
	if err != nil {
		if !d.interrupted(ctx) {
			close(d.ended)
			dev.Close()
		}
		return fmt.Errorf("join the lockspace on %s: %w", d.cfg.Device, err)
	}
	if err = d.stayAway(d.mem.ID()); err != nil {
		if failed := d.settleAndLeave(ctx); failed != nil {
			err = fmt.Errorf("%w; leaving failed: %w", err, failed)
		}
		return fmt.Errorf("join the lockspace on %s: %w", d.cfg.Device, err)
	}
	d.cfg.quarantine.Start(d.clock.Now())
	d.drivers.Go(d.keepSlots)
	if !d.cfg.repair {
		d.drivers.Go(d.keepIntents)
	}
	close(d.joined)
	return nil
}

func (d *Daemon) joinOnce(ctx context.Context) (err error) {
	if host := d.cfg.HostID; host != 0 && d.hasLeft(host) {
		if err = d.stayAway(host); err != nil {
			return err
		}
	}
	if d.ids, err = hostid.New(d.cfg.identity(), d.sb.UUID); err != nil {
		return err
	}
	d.sessions = newSessions(d)
	var p *previousProcess
	if d.cfg.Keep {
		p = d.findPreviousProcess(ctx, d.ids)
		d.left.Store(p)
	}
	if p != nil {
		minding, done := context.WithCancel(ctx)
		d.tasks.Go(func() { d.mind(minding, p) })
		defer done()
	}
	if err = d.enter(ctx, p); err == nil {
		err = d.takeOver(ctx, p)
		if err != nil { // other hosts must assume that this host may still hold its locks
			d.mem.LoseFor(err)
		}
	}
	if err != nil && !d.interrupted(ctx) {
		if d.mem != nil {
			d.mem.Wait()
		}
		d.ids.ReleaseLockFiles()
	}
	return err
}

// interrupted reports whether the join was cancelled while a previous process's holds are pending.
// Then all state is left for the next process, and this process must end.
func (d *Daemon) interrupted(ctx context.Context) bool {
	return ctx.Err() != nil && d.left.Load() != nil
}

// enter makes the host live, as the same incarnation if p can be continued.
func (d *Daemon) enter(ctx context.Context, p *previousProcess) error {
	// its lease is over, so its commands must be stopped
	if p != nil && d.clock.Now() >= p.expires(d.times()) {
		if err := d.abandon(ctx, p); err != nil {
			return err
		}
		p = nil
	}
	self := d.ids.HostRecord()
	if d.cfg.arm != nil {
		timeout, err := d.cfg.arm(d.times())
		if err != nil {
			return fmt.Errorf("%w: %w", ErrWatchdog, err)
		}
		if longest := d.times().MaxWatchdog(); timeout > longest {
			return fmt.Errorf("%w: time-out of %v, want at most %v with a lease of %v: use a watchdog with a shorter time-out, such as softdog",
				ErrWatchdog, timeout, longest, d.sb.Lease)
		}
		self.WatchdogArmed, self.WatchdogSeconds = timeout > 0, uint16(min(timeout/time.Second, math.MaxUint16))
	}
	var resume *lease.Term
	var key uint64
	if p != nil {
		resume = &lease.Term{ID: p.term.HostID, Incarnation: p.term.Incarnation, T0: p.term.T0, Ready: p.term.Ready, Clean: p.term.Clean}
		key = p.term.PRKey
	}
	d.fencing = membership.NewFencing(d.cfg.Fence, d.cfg.Device, d.sb.Policy, d.log, p != nil, key)
	if err := d.fencing.Prepare(d.cfg.HostID); err != nil {
		return err
	}
	var err error
	d.mem, err = membership.New(membership.Config{
		Dev: d.bare, SB: d.sb, Log: d.log, Identity: d.ids, Clock: d.clock, Fencing: d.fencing, Events: d.cfg.Events, Tally: d.cfg.Tally,
		Stalls: d.stalls, Quarantine: d.cfg.quarantine, HostID: d.cfg.HostID, Self: self, Reclaim: d.cfg.reclaim, Resume: resume,
		Alive: d.cfg.Alive, AliveEvery: d.cfg.AliveEvery,
	})
	if err != nil {
		return err
	}
	mem, ss := d.mem, d.sessions // the next attempt to join replaces these fields
	d.tasks.Go(func() { d.guard(mem, ss) })
	d.tasks.Go(func() {
		select {
		case <-mem.Lost():
			d.holdsLost()
		case <-d.ended:
		}
	})
	d.mem.Start()
	d.driving.Store(d.mem)
	select {
	case <-d.mem.Ready():
		return nil
	case <-d.mem.Over():
		return d.mem.Err()
	case <-ctx.Done():
		if !d.interrupted(ctx) {
			d.mem.Leave()
		}
		return context.Cause(ctx)
	}
}

// takeOver handles the holds that a previous process left, before any client is served. It restores
// them, or stops their commands if the incarnation could not be continued. From here on, state is
// kept for the next process.
func (d *Daemon) takeOver(ctx context.Context, p *previousProcess) error {
	switch {
	case !d.cfg.Keep:
		return nil
	case p != nil && d.mem.Resumed():
		d.sessions.journal = p.journal
		d.log.Info("resuming the state of the previous bakeryd", "sessions", len(p.sessions))
		d.keepTerms()
		// First, because restore releases what the handover file does not list.
		if err := d.stopStrays(ctx, d.mem.ID(), p.sessions); err != nil {
			return err
		}
		if err := d.restore(p); err != nil {
			return err
		}
	default:
		if p != nil {
			if err := d.abandon(ctx, p); err != nil {
				return err
			}
		}
		j, err := handover.Create(d.ids.RuntimeDir, d.sb.UUID, d.mem.ID())
		if err != nil {
			d.log.Warn("keeping no state for a restart: after one, all locks of this host are lost", "err", err)
			break
		}
		d.sessions.journal = j
		d.keepTerms()
	}
	if err := d.stopStrays(ctx, d.mem.ID(), nil); err != nil {
		return err
	}
	d.left.Store(nil)
	return nil
}

// KeepTerms writes every term of the lease into the handover file.
func (d *Daemon) keepTerms() {
	j, boot := d.sessions.journal, hostid.BootID() // as a reader of the file has it
	d.mem.KeepTerms(func(t lease.Term) {
		err := j.SetTerm(handover.Term{UUID: d.sb.UUID, Boot: handover.BootText(boot), HostID: t.ID, Incarnation: t.Incarnation, T0: t.T0, Ready: t.Ready, Clean: t.Clean, PRKey: d.fencing.Key()})
		if err != nil {
			d.log.Error("keeping the state for a restart failed: after one, all locks of this host are lost", "err", err)
		}
	})
}

// stopStrays removes the liveness FIFOs of unknown holds and stops the commands that still have
// them open: their handover file was lost. Sessions in restored are known, too. Called with the
// lock file of the host id held.
func (d *Daemon) stopStrays(ctx context.Context, host int, restored []handover.Session) error {
	known := func(id string) bool {
		if slices.ContainsFunc(restored, func(r handover.Session) bool { return r.ID == id }) {
			return true
		}
		d.sessions.mu.Lock()
		defer d.sessions.mu.Unlock()
		return d.sessions.byID[id] != nil
	}
	strays, err := liveness.Prune(d.ids.RuntimeDir, d.sb.UUID, host, known)
	if err != nil {
		d.log.Warn("removing liveness FIFOs of unknown holds failed", "err", err)
	}
	for _, path := range strays {
		d.log.Warn("a command has outlived its lock, stopping it", "witness", path)
		s := d.sessions.make("")
		if s.fifo, err = liveness.Open(path, fdlimit.UnknownUser); err == nil {
			err = s.stopCommand(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stopping reports whether Close was called.
func (d *Daemon) stopping() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}
