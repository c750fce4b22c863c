package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/memberdisks"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/tasks"
	"github.com/bakeryd/bakeryd/daemon/waiting"
	"github.com/bakeryd/bakeryd/layout"
)

// If a process of the same machine has just taken the id, a host without a configured id tries
// another one. It tries joinTries times, with a pause of joinAgain.
const (
	joinTries = 20
	joinAgain = 50 * time.Millisecond
)

// Join opens the device and joins the lockspace on it, or continues the term of a previous process.
// It returns when locks can be acquired. It returns ErrNoLockspace, ErrTaken, the reasons of
// package lease, the errors of [blockdev.Open] and [lockspace.FindLockspace], or the cause of ctx's end.
func Join(ctx context.Context, cfg Config) (*Host, error) { return newJoiner(cfg).join(ctx) }

// joiner joins a host once. Until Join returns, it is all that there is of the host; then it is part
// of it.
type joiner struct {
	cfg     Config
	log     *slog.Logger
	clock   clock.Clock
	disk    *store.Disk
	devices Devices
	members *memberdisks.Disks
	ending  *session.Ending
	stage   *waiting.Stage // until it has joined
	tasks   tasks.Group

	unheld  bool                              // no client that this joiner does not know has a lock
	left    atomic.Pointer[previousProcess]   // process that may have left commands; nil if none
	driving atomic.Pointer[membership.Member] // once its loop runs; nil before
}

func newJoiner(cfg Config) *joiner {
	cfg = cfg.complete()
	return &joiner{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, ending: session.NewEnding(), stage: cmp.Or(cfg.Waiting, new(waiting.Stage)), members: memberdisks.New(cfg.Logger, cfg.Events, cfg.identity())}
}

func (j *joiner) join(ctx context.Context) (*Host, error) {
	j.stage.For("the disks to answer: "+j.cfg.DeviceNames(), waiting.CheckDisks)
	dev, err := j.open()
	if err != nil {
		return nil, err
	}
	sb, copyUsed, err := lockspace.FindLockspace(dev)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	if copyUsed != 0 {
		j.log.Warn("superblock is damaged, using its copy", "device", j.cfg.DeviceNames())
	}
	if j.cfg.HostID < 0 || j.cfg.HostID > sb.Geometry.Hosts {
		dev.Close()
		return nil, &hostid.SettingError{Flag: "host-id", Err: fmt.Errorf("host id %d, want 1 to %d, the hosts of the lockspace", j.cfg.HostID, sb.Geometry.Hosts), Of: api.ErrInvalid}
	}
	var refused func(error)
	if sb.Policy == layout.PolicyFence {
		refused = j.cutOff
	}
	j.devices = DevicesOn(dev, j.cfg.Tally, refused)
	if sb.Members.Several() {
		j.cfg.Fence.Members = j.members
		j.tasks.Go(func() { j.members.Watch(j.ending.Ended) })
	}
	j.disk = &store.Disk{Dev: j.devices.Locks, SB: sb, Clock: j.clock, Stalls: new(stall.Watch), Quarantine: j.cfg.quarantine}
	var h *Host
	for try := 0; ; try++ {
		h, err = j.joinOnce(ctx)
		if !errors.Is(err, hostid.ErrTaken) || j.cfg.HostID != 0 || try == joinTries {
			break
		}
		_ = retry.Pause(ctx, joinAgain)
	}
	if err != nil {
		if !j.interrupted(ctx) {
			j.ending.End()
			dev.Close()
		}
		return nil, fmt.Errorf("join the lockspace on %s: %w", j.cfg.DeviceNames(), err)
	}
	j.stage.For("the slots of locks by which the lease was lost", waiting.CheckDisks)
	if err = j.disk.StayAway(h.HostID()); err != nil {
		if failed := h.settleAndLeave(ctx); failed != nil {
			err = fmt.Errorf("%w; leaving failed: %w", err, failed)
		}
		return nil, fmt.Errorf("join the lockspace on %s: %w", j.cfg.DeviceNames(), err)
	}
	j.cfg.quarantine.Start(j.clock.Now())
	h.Start()
	h.sessions.Serve()
	return h, nil
}

func (j *joiner) open() (blockdev.Device, error) {
	if j.cfg.Open != nil {
		return j.cfg.Open()
	}
	return j.members.Open(j.cfg.Devices, j.cfg.Disks)
}

func (j *joiner) joinOnce(ctx context.Context) (*Host, error) {
	if host := j.cfg.HostID; host != 0 && j.disk.HasLeft(host) {
		if err := j.disk.StayAway(host); err != nil {
			return nil, err
		}
	}
	ids, err := hostid.New(j.cfg.identity(), j.disk.SB.UUID)
	if err != nil {
		return nil, err
	}
	var p *previousProcess
	if j.cfg.Keep {
		p = j.findPreviousProcess(ctx, ids)
		j.left.Store(p)
	}
	if p != nil {
		minding, done := context.WithCancel(ctx)
		j.tasks.Go(func() { j.mind(minding, p) })
		defer done()
	}
	var mem *membership.Member
	if p == nil {
		err = j.awaitUnheld(ctx, ids)
	}
	if err == nil {
		mem, err = j.enter(ctx, ids, p)
	}
	var h *Host
	if err == nil {
		if h, err = j.takeOver(ctx, ids, mem, p); err != nil { // other hosts must assume that this host may still hold its locks
			mem.LoseFor(err)
		}
	}
	if err != nil && !j.interrupted(ctx) {
		if mem != nil {
			mem.Wait()
		}
		ids.ReleaseLockFiles()
	}
	return h, err
}

// cutOff ends the lease immediately with fence-after, because other hosts may have the locks already. Without
// it none has them before the lease is over. A host that still joins would try again with its old key for ever.
func (j *joiner) cutOff(err error) {
	if mem := j.driving.Load(); mem != nil && (j.disk.SB.FenceAfter > 0 || mem.Moments().Deadline == 0) {
		mem.LoseFor(fmt.Errorf("%w: %w", membership.ErrCutOff, err))
	}
}

// oldCommands is waited for if the lease of the previous bakeryd is over.
const oldCommands = "commands of the previous bakeryd to end, its lease is over"

// awaitUnheld waits until no client of an unknown earlier process of this boot, for example one with another
// host id, has a lock. With fence-after other hosts may have that lock before its lease is over, as its key
// is gone, but a key that this process registers lets all processes of the machine write.
func (j *joiner) awaitUnheld(ctx context.Context, ids *hostid.Identity) error {
	if sb := j.disk.SB; !j.unheld && sb.FenceAfter > 0 && cmp.Or(j.cfg.Fence.Agent, "pr") == "pr" {
		rows, err := lockspace.ReadHostTable(j.devices.Lease, sb.Space())
		if err != nil {
			return err
		}
		left := ids.LeftIncarnations()
		if i := slices.IndexFunc(rows, func(r lockspace.HostRow) bool {
			h := r.Record
			return r.Err == nil && h.State == layout.StateLive && h.MachineID == ids.MachineID && h.BootID == ids.BootID && !slices.Contains(left, h.Incarnation)
		}); i >= 0 {
			j.log.Warn("an earlier bakeryd of this machine has not left, joining when its lease is over", "host", rows[i].ID)
			j.stage.For("the end of the lease of an earlier bakeryd of this machine", "")
			if err := retry.Pause(ctx, sb.Lease); err != nil {
				return err
			}
		}
	}
	j.unheld = true
	return nil
}

// interrupted reports whether the join was cancelled while a previous process's holds are pending.
// Then all state is left for the next process, and this process must end.
func (j *joiner) interrupted(ctx context.Context) bool {
	return ctx.Err() != nil && j.left.Load() != nil
}

// enter makes the host live, as the same incarnation if p can be continued. The member is nil if
// there was no attempt.
func (j *joiner) enter(ctx context.Context, ids *hostid.Identity, p *previousProcess) (*membership.Member, error) {
	times, sb := j.disk.Times(), j.disk.SB
	// its lease is over, so its commands must be stopped
	if p != nil && j.clock.Now() >= p.expires(times) {
		j.stage.For(oldCommands, waiting.EndCommands)
		if err := j.abandon(ctx, p); err != nil {
			return nil, err
		}
		p = nil
	}
	self := ids.HostRecord()
	if j.cfg.arm != nil {
		j.stage.For("commands of lost locks to end, before the watchdog is armed", waiting.EndCommands)
		timeout, err := j.cfg.arm(times)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrWatchdog, err)
		}
		if longest := times.MaxWatchdog(); timeout > longest {
			return nil, fmt.Errorf("%w: time-out of %v, want at most %v with a lease of %v: use a watchdog with a shorter time-out, such as softdog",
				ErrWatchdog, timeout, longest, sb.Lease)
		}
		self.WatchdogArmed, self.WatchdogSeconds = timeout > 0, uint16(min(timeout/time.Second, math.MaxUint16))
	}
	cfg := membership.Config{
		Dev: j.devices.Lease, SB: sb, Log: j.log, Identity: ids, Clock: j.clock, Fence: j.cfg.Fence, NewAgent: j.agent, Events: j.cfg.Events, Tally: j.cfg.Tally,
		Stalls: j.disk.Stalls, Quarantine: j.disk.Quarantine, Lease: lease.Config{ID: j.cfg.HostID, Self: self, Reclaim: j.cfg.reclaim},
		Alive: j.cfg.Alive, AliveEvery: j.cfg.AliveEvery, Take: j.members.Take, Earlier: j.cfg.earlier,
		WarnOfName: j.cfg.Keep, // not for a command with --device: several on one machine have its name
	}
	if p != nil {
		cfg.Lease.Resume = &lease.Term{ID: p.term.HostID, Incarnation: p.term.Incarnation, T0: p.term.T0, Ready: p.term.Ready, Clean: p.term.Clean,
			ReadHorizon: p.term.ReadHorizon, Epoch: p.term.Epoch}
		cfg.Fence.Key, cfg.Previous = p.term.PRKey, p.file
	}
	if p != nil {
		j.members.Take(p.term.HostID)
	}
	mem, err := membership.Join(cfg)
	if p != nil && sb.FenceAfter > 0 && errors.Is(err, fence.ErrFenced) {
		return j.enterFenced(ctx, ids, p)
	}
	if err != nil {
		return nil, err
	}
	j.driving.Store(mem)
	j.stage.By(mem.Waits)
	select {
	case <-mem.Ready():
		return mem, nil
	case <-mem.Over():
		return mem, mem.Err()
	case <-ctx.Done():
		if !j.interrupted(ctx) {
			mem.Leave()
		}
		return mem, context.Cause(ctx)
	}
}

// agent returns the fence agent of this host, which admits the member disks from then on.
func (j *joiner) agent(cfg fence.Config) (fence.Agent, error) {
	agent, err := j.cfg.Machine.Fence(cfg)
	if admitter, ok := agent.(fence.Admitter); ok && cfg.Members != nil {
		j.members.AdmitBy(admitter)
	}
	return agent, err
}

// enterFenced stops the commands of a process that was fenced within its lease, and makes the host live.
// Other hosts may have its locks. A client that bakeryd cannot stop continues until the last deadline that
// it was told, and could write again once this process has registered a key.
func (j *joiner) enterFenced(ctx context.Context, ids *hostid.Identity, p *previousProcess) (*membership.Member, error) {
	j.log.Warn("another host has fenced the previous bakeryd, stopping its commands, and joining when its lease is over")
	j.stage.For(oldCommands, waiting.EndCommands)
	if err := j.abandon(ctx, p); err != nil {
		return nil, err
	}
	j.stage.For("the end of the lease of the previous bakeryd, which was fenced", "")
	if err := retry.Pause(ctx, p.ended+j.disk.SB.Lease-j.clock.Now()); err != nil {
		return nil, err
	}
	return j.enter(ctx, ids, nil)
}

// observer returns the Observer of locks and clients.
func (c *Config) observer() observe.Observer {
	return &observe.Recorder{Journal: c.Events, Tally: c.Tally, Log: c.Logger}
}

// takeOver returns the host, which is live. It handles the holds that a previous process left,
// before any client is served: it restores them, or stops their commands if the incarnation could
// not be continued. From here on, state is kept for the next process.
func (j *joiner) takeOver(ctx context.Context, ids *hostid.Identity, mem *membership.Member, p *previousProcess) (*Host, error) {
	if p != nil && !mem.Resumed() {
		j.stage.For(oldCommands, waiting.EndCommands)
		if err := j.abandon(ctx, p); err != nil {
			return nil, err
		}
		p = nil
	}
	var file *handover.File
	known := map[string]bool{}
	switch {
	case p != nil:
		file = p.file
		j.log.Info("resuming the state of the previous bakeryd", "sessions", len(p.sessions))
		for _, r := range p.sessions {
			known[r.ID] = true
		}
	case j.cfg.Keep:
		var err error
		if file, err = j.keepState(ids, mem.ID()); err != nil {
			j.log.Warn("creating the handover file failed: a restart of bakeryd will lose all locks of this host", "err", err)
		}
	}
	h := j.host(ids, mem, file)
	if !j.cfg.Keep {
		return h, nil
	}
	j.stage.For("commands that have outlived their locks to end", waiting.EndCommands)
	// First, because Resume releases what the handover file does not list.
	err := j.stopStrays(ctx, ids, mem.ID(), known)
	if err == nil && p != nil {
		p.heir.Store(mem)
		// By then all clients have stopped that were told the latest deadline, which the handover file
		// may not have had yet.
		until := p.ended + j.disk.Times().Dead()
		j.stage.For("the slots of locks that the previous bakeryd left to be read and written", waiting.CheckDisks)
		err = h.Resume(p.sessions, func(lk *locks.Lock, r handover.Session) { h.sessions.Restore(lk, r, until) })
	}
	if err == nil {
		j.stage.For("commands that have outlived their locks to end", waiting.EndCommands)
		// of sessions that were not restored
		err = j.stopStrays(ctx, ids, mem.ID(), h.sessions.Known())
	}
	if err != nil {
		return nil, err
	}
	j.left.Store(nil)
	return h, nil
}

// keepState creates the handover file, with notes of slots if there are several disks.
func (j *joiner) keepState(ids *hostid.Identity, host int) (*handover.File, error) {
	file, err := handover.Create(ids.RuntimeDir, j.disk.SB.UUID, host)
	if err == nil && j.disk.SB.Members.Several() {
		if err = file.CreateNotes(j.disk.SB.Geometry.Locks); err != nil {
			return nil, errors.Join(err, file.Discard())
		}
	}
	return file, err
}

// host returns a host that is live.
func (j *joiner) host(ids *hostid.Identity, mem *membership.Member, file *handover.File) *Host {
	h := &Host{
		joiner: j, began: j.clock.Now(), ids: ids, mem: mem, handover: file,
		Manager: locks.New(&driver.Host{Host: queue.Host{Name: ids.Name, Observer: j.cfg.observer(), Traced: j.cfg.Events != nil},
			Disk: j.disk, Member: mem, Notes: file.SlotNotes(), Handoff: j.cfg.Handoff, Linger: j.cfg.Linger, Wall: j.cfg.Machine.Wall}, j.cfg.repair),
	}
	h.Meter = measuring.New(h.Manager, j.disk, mem, ids.Name, j.log)
	if file != nil {
		mem.KeepTerms(file)
		h.tasks.Go(h.watchHandover)
	}
	h.sessions = session.New(session.Config{Locks: h.Manager, Member: mem, RuntimeDir: ids.RuntimeDir, UUID: j.disk.SB.UUID, Times: j.disk.Times(),
		Clock: j.clock, Log: j.log, Observer: j.cfg.observer(), Ending: j.ending, Handover: file})
	h.tasks.Go(func() {
		select {
		case <-mem.Lost():
			h.HoldsLost()
		case <-h.ending.Ended:
		}
	})
	return h
}

// watchHandover removes a handover file that is void.
func (h *Host) watchHandover() {
	select {
	case <-h.handover.Void():
		h.log.Error("writing the handover file failed: a restart of bakeryd will lose all locks of this host",
			"err", errors.Join(h.handover.Err(), h.handover.Discard()))
	case <-h.ending.Ended:
	}
}

// stopStrays removes the liveness FIFOs of unknown holds and stops the commands that still have
// them open: their handover file was lost. Called with the lock file of the host id held.
func (j *joiner) stopStrays(ctx context.Context, ids *hostid.Identity, host int, known map[string]bool) error {
	strays, err := liveness.Prune(ids.RuntimeDir, j.disk.SB.UUID, host, func(id string) bool { return known[id] })
	if err != nil {
		j.log.Warn("removing liveness FIFOs of unknown holds failed", "err", err)
	}
	for _, path := range strays {
		j.log.Warn("a command has outlived its lock, stopping it", "witness", path)
		c := j.command(locks.Request{})
		if c.FIFO, err = liveness.Open(path, fdlimit.UnknownUser); err == nil {
			err = c.Stop(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// command returns a command that a previous process has left.
func (j *joiner) command(req locks.Request) *command.Command {
	return &command.Command{Lock: req.Name, PID: req.PID, Log: j.log, Report: func(kind events.Kind, reason string) {
		e := req.Happening(kind)
		e.Reason = reason
		j.cfg.observer().Observe(e)
	}}
}

// unburdened reports whether no previous process has left a hold.
func (j *joiner) unburdened() bool { return j.left.Load() == nil }

// safe reports whether nothing runs that must have stopped.
func (j *joiner) safe(now time.Duration) bool {
	p := j.left.Load()
	return p == nil || now < p.expires(j.disk.Times())
}

// drives reports whether a lease is driven. Its loop then reports that the service is alive.
func (j *joiner) drives() bool {
	mem := j.driving.Load()
	return mem != nil && !mem.IsOver()
}
