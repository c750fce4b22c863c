package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/waiting"
	"github.com/bakeryd/bakeryd/layout"
)

// previousProcess is a bakeryd of this boot that has ended without leaving the lockspace.
type previousProcess struct {
	abandoning chan struct{} // has room for one: only one goroutine at a time abandons it
	stopped    bool          // abandon is done; owned by that goroutine
	runtimeDir string
	file       *handover.File
	term       handover.Term
	sessions   []handover.Session
	ended      time.Duration                     // time by which it had ended
	heir       atomic.Pointer[membership.Member] // continues its lease; nil if none, or not yet
}

// expires returns when its lease ends, or the lease of the process that continues it.
func (p *previousProcess) expires(t timing.Times) time.Duration {
	if heir := p.heir.Load(); heir != nil {
		return heir.Moments().Deadline
	}
	return p.term.T0 + t.Lease
}

// findPreviousProcess looks for a handover file to continue from, and takes the lock file of its host
// id. With that lock file, the previous process has ended and has no write in flight. It waits for
// a process that is about to end, as long as awaitEnd does.
func (j *joiner) findPreviousProcess(ctx context.Context, ids *hostid.Identity) *previousProcess {
	for _, host := range handover.Find(ids.RuntimeDir, j.disk.SB.UUID) {
		if j.cfg.HostID != 0 && host != j.cfg.HostID {
			continue
		}
		j.stage.For(fmt.Sprintf("another bakeryd of this machine with host id %d to end", host), waiting.EndOther)
		if err := j.awaitEnd(ctx, ids, host); err != nil {
			// in use, possibly by a bakeryd with another socket
			continue
		}
		file, term, sessions, err := handover.Resume(ids.RuntimeDir, j.disk.SB.UUID, host, j.clock.Now())
		if err == nil {
			err = fits(j.disk.SB.Geometry, term, sessions)
			if err == nil && j.disk.SB.Members.Several() {
				err = file.ResumeNotes(j.disk.SB.Space())
			}
			if err != nil {
				file.Close()
			}
		}
		if err == nil {
			return &previousProcess{abandoning: make(chan struct{}, 1), runtimeDir: ids.RuntimeDir, file: file, term: term, sessions: sessions,
				ended: j.clock.Now()}
		}
		j.log.Warn("handover file not usable, joining as a new incarnation", "err", err)
		j.disown(ctx, ids, host)
	}
	j.disownForgotten(ctx, ids)
	return nil
}

// abandonOthers stops the clients of another kind that a previous process left with a host id.
func (j *joiner) abandonOthers(ctx context.Context, dir string, host int) error {
	if j.cfg.Abandon == nil {
		return nil
	}
	return j.cfg.Abandon(ctx, dir, j.disk.SB.UUID, host)
}

// disown stops the commands that a previous bakeryd left under a host id: it is not known which
// locks they hold. Called with the id's lock file held.
func (j *joiner) disown(ctx context.Context, ids *hostid.Identity, host int) {
	if err := errors.Join(j.stopStrays(ctx, ids, host, nil), j.abandonOthers(ctx, ids.RuntimeDir, host)); err != nil {
		j.log.Warn("stopping the commands of the previous bakeryd failed", "err", err)
	}
	ids.ReleaseLockFiles()
}

// disownForgotten does that for ids that have commands and no handover file. It does so
// immediately: other hosts may have their locks when that lease ends, and joining may take longer.
func (j *joiner) disownForgotten(ctx context.Context, ids *hostid.Identity) {
	hosts := liveness.Hosts(ids.RuntimeDir, j.disk.SB.UUID)
	if j.cfg.Abandon != nil {
		hosts = append(hosts, handover.Hosts(ids.RuntimeDir, j.disk.SB.UUID, j.cfg.AbandonSuffix)...)
	}
	for _, host := range hosts {
		_, err := os.Stat(handover.Path(ids.RuntimeDir, j.disk.SB.UUID, host))
		if j.cfg.HostID != 0 && host != j.cfg.HostID || !errors.Is(err, os.ErrNotExist) || ids.TakeLockFile(host) != nil {
			continue // of another running bakeryd
		}
		j.log.Warn("a previous bakeryd left commands and no state, stopping them", "host", host)
		j.disown(ctx, ids, host)
	}
}

// fits returns an error if a handover file names a host id or a lock that does not exist.
func fits(g layout.Geometry, term handover.Term, sessions []handover.Session) error {
	if term.HostID > g.Hosts {
		return fmt.Errorf("it is of host id %d, want 1 to %d", term.HostID, g.Hosts)
	}
	for _, s := range sessions {
		if s.Lock > g.Locks {
			return fmt.Errorf("it has session %s in lock %d, want at most %d", s.ID, s.Lock, g.Locks)
		}
	}
	return nil
}

// awaitEnd takes the lock file of a host id, which another process may still hold. If no id is
// configured, that may be a process that continues to run.
func (j *joiner) awaitEnd(ctx context.Context, ids *hostid.Identity, host int) error {
	give := time.Now().Add(4 * joinAgain)
	if j.cfg.HostID != 0 {
		give = time.Now().Add(j.disk.Times().Renew())
	}
	for {
		err := ids.TakeLockFile(host)
		if err == nil || !errors.Is(err, hostid.ErrTaken) || time.Now().After(give) {
			return err
		}
		if retry.Pause(ctx, joinAgain) != nil {
			return err
		}
	}
}

// mind stops the commands of a previous process when its lease ends, unless its lease is continued
// before.
func (j *joiner) mind(ctx context.Context, p *previousProcess) {
	alarm, err := j.clock.NewAlarm()
	if err != nil {
		j.log.Error("no timer, commands of the previous bakeryd are stopped only after the host has joined", "err", err)
		return
	}
	defer alarm.Close()
	defer context.AfterFunc(ctx, alarm.Close)()
	// the deadline moves once the lease is continued
	for at := p.expires(j.disk.Times()); j.clock.Now() < at; at = p.expires(j.disk.Times()) {
		if alarm.Set(at) != nil || alarm.Wait() != nil {
			return
		}
	}
	if j.left.Load() == nil {
		return
	}
	switch err := j.abandon(ctx, p); {
	case err == nil:
		j.left.CompareAndSwap(p, nil)
	case ctx.Err() == nil:
		j.log.Error("stopping the commands of the previous bakeryd failed", "err", err)
	}
}

// abandon stops the commands of a previous process that cannot be continued, and blocks until they
// have ended. From the end of its lease, other hosts may have its locks.
func (j *joiner) abandon(ctx context.Context, p *previousProcess) error {
	p.abandoning <- struct{}{} // for long, so not a mutex
	defer func() { <-p.abandoning }()
	if p.stopped {
		return nil
	}
	left := make([]*command.Command, 0, len(p.sessions))
	for _, r := range p.sessions {
		c := j.command(locks.Request{Name: r.Name, PID: r.PID})
		c.ID, c.Peer = r.ID, process.ID{PID: r.Peer, Started: r.PeerStarted}
		// else its cgroup has a process that waits to become the command
		if r.State == handover.Granted {
			c.Regroup(r)
		}
		if r.Witness {
			c.FIFO, _ = liveness.Open(filepath.Join(p.runtimeDir, liveness.Name(p.term.UUID, p.term.HostID, r.ID)), r.PeerUID)
		}
		if c.Remains() {
			j.log.Warn("stopping a command of the previous bakeryd, its lease is over", "lock", r.Name, "pid", r.PID, "command", r.Command)
		}
		left = append(left, c)
	}
	// All are stopped at the same time, because one may not end.
	table, _ := process.Table() // stop reads it again, and reports errors
	for _, c := range left {
		_, _ = c.KillGroup(table) // stop retries it
	}
	errs := make([]error, len(left)+1)
	var all sync.WaitGroup
	for i, c := range left {
		all.Go(func() { errs[i] = c.Stop(ctx) })
	}
	all.Go(func() { errs[len(left)] = j.abandonOthers(ctx, p.runtimeDir, p.term.HostID) })
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.stopped = true
	return p.file.Discard()
}
