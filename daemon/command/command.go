// Package command finds and stops the processes under a lock: the command of a session, and what it
// has started. It never knows the lock.
//
// The command of a session gets a cgroup below that of its wrapper, which both find by
// the same name. The wrapper creates it if it may, and starts the command in it. If not, bakeryd
// creates it and moves the process that is about to become the command into it. With it bakeryd
// stops all processes of a command, even if the wrapper is gone, whatever they closed, became or
// forked. Without it bakeryd finds only the processes that have the session's FIFO open, and their
// descendants.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/retry"
)

// Command is the processes under the lock of a session: the command, and what it has started.
type Command struct {
	ID    string         // of the session; the cgroup is named after it
	Lock  string         // name of the lock
	PID   int            // for display
	Peer  process.ID     // process that connected
	UID   int            // its user
	FIFO  *liveness.FIFO // liveness FIFO of the command; nil if none was requested
	Alone bool           // the lock is held by the client alone, and ends with it
	Log   *slog.Logger
	// what happened to its processes: events.Kill or events.Remains
	Report func(kind events.Kind, reason string)

	remained atomic.Bool  // an event reported that processes remain
	stopped  atomic.Int32 // last signal to the command that an event reported; 0: none

	mu     sync.Mutex    // guards the rest
	Group  *cgroup.Group // of the command, even before it runs; nil if none, see weak
	weak   error         // why the command has no cgroup; nil if not known
	chased []process.ID  // processes of the command that were found to be stopped
}

// ErrNoGroup is the reason why a command that bakeryd does not stop is not contained.
var ErrNoGroup = errors.New("it has no part in the lock, as with --close")

// errHidden is the reason why the command of a client in another pid namespace is not contained.
var errHidden = errors.New("bakeryd cannot see the client's process: it is in another pid namespace")

// FindGroup determines the cgroup of the session's command, which may not exist yet.
func (c *Command) FindGroup() {
	if c.Peer.PID == 0 {
		c.weak = errHidden
		return
	}
	groups, err := cgroup.Of(c.Peer.PID, c.ID)
	switch {
	case errors.Is(err, cgroup.ErrNone):
	case err != nil:
		err = fmt.Errorf("bakeryd of uid %d cannot inspect process %d of uid %d: %w", os.Geteuid(), c.Peer.PID, c.UID, err)
	case !c.Peer.Alive(): // its pid may be another process's
		err = fmt.Errorf("process %d has ended", c.Peer.PID)
	default:
		err = handover.CheckCgroup(groups[0].Dir)
	}
	if c.weak = err; err == nil {
		c.Group = groups[0]
	}
}

// Regroup restores the recorded cgroup of the command.
func (c *Command) Regroup(r handover.Session) {
	if r.Cgroup != "" {
		c.Group = &cgroup.Group{Dir: r.Cgroup}
	}
}

// Contain moves a process into the session's cgroup. The kernel reports the process by the pid that
// it had when it connected, which may be another process's by now. Therefore it must be a process
// of the user that connected. It must be in the client's cgroup, so that it does not escape its
// limits.
func (c *Command) Contain(conn *net.UnixConn) error {
	group, _, weak := c.Contained()
	if group == nil {
		return fmt.Errorf("%w: %w", api.ErrUncontained, cmp.Or(weak, ErrNoGroup))
	}
	pid, uid, _ := peer.Credentials(conn)
	member, _ := process.Of(pid)
	if member.PID == 0 {
		return fmt.Errorf("%w: %w", api.ErrUncontained, errHidden)
	}
	parent := filepath.Dir(group.Dir)
	dirs, err := cgroup.Parents(member.PID)
	if err != nil {
		return fmt.Errorf("%w: find the cgroup of process %d: %w", api.ErrUncontained, member.PID, err)
	}
	if !slices.Contains(dirs, parent) {
		return fmt.Errorf("%w: process %d is not in the cgroup of the client, %s", api.ErrInvalid, member.PID, parent)
	}
	if runsAs, err := member.RunsAs(uid); err != nil || !runsAs && uid != 0 {
		return fmt.Errorf("%w: process %d is not one of user %d: %w", api.ErrInvalid, member.PID, uid, cmp.Or(err, os.ErrPermission))
	}
	g, err := cgroup.Make([]*cgroup.Group{group}, nil)
	if err == nil {
		// If there is no bakeryd, the wrapper stops the command, even one that has become another
		// user.
		err = errors.Join(g.AllowKill(c.UID), g.Add(member.PID))
	}
	if err != nil {
		g.Remove() // fails if a process is in it; a threaded cgroup takes none
		err = fmt.Errorf("move process %d into a cgroup: %w", member.PID, err)
		c.mu.Lock()
		c.weak = err
		c.mu.Unlock()
		return fmt.Errorf("%w: %w", api.ErrUncontained, err)
	}
	if peer.HungUp(conn) || !member.Alive() {
		// Its pid may be another process's by now, which must not be killed.
		c.mu.Lock()
		c.Group, c.weak = nil, errors.New("the process that was to be contained has ended")
		c.mu.Unlock()
		return fmt.Errorf("%w: process %d has ended", api.ErrInvalid, member.PID)
	}
	return nil
}

// Remains reports whether there is a process to stop when the lock is lost.
func (c *Command) Remains() bool {
	group, chased, _ := c.Contained()
	return c.Witnessed() || group.Populated() || slices.ContainsFunc(chased, process.ID.Alive)
}

// Witnessed reports whether a process has the FIFO of the session open.
func (c *Command) Witnessed() bool { return c.FIFO != nil && c.FIFO.Alive() }

// Contained returns the cgroup of the command, nil if none, its processes that were found before,
// and why it has no cgroup; nil if not known.
func (c *Command) Contained() (group *cgroup.Group, chased []process.ID, weak error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Group, c.chased, c.weak
}

// Containment describes how certain it is that all of a command is stopped. It is empty if there
// may be no command.
func (c *Command) Containment() string {
	group, _, weak := c.Contained()
	switch {
	case group != nil && group.Exists():
		if why := c.Uncontainable(); why != "" {
			return "weak: " + why
		}
		return "cgroup"
	case c.Alone:
		return ""
	case weak != nil:
		return "weak: " + weak.Error()
	}
	return "weak: the command has no cgroup of its own"
}

// Uncontainable returns the reason why bakeryd cannot find or kill the cgroup of the command,
// wherever that is created; empty if it can.
func (c *Command) Uncontainable() string {
	group, _, err := c.Contained()
	switch {
	case group == nil:
	case !group.Exists():
		err = group.CheckMake() // the wrapper may be about to create it
	default:
		if err = group.CheckKill(); err != nil {
			err = fmt.Errorf("bakeryd may not kill the cgroup of the command: %w", err)
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// KillGroup kills all processes in the command's cgroup, and returns their number. Descendants may
// have been moved elsewhere. They are chased, because their parents end now.
func (c *Command) KillGroup(table []process.Stat) (int, error) {
	group, chased, _ := c.Contained()
	members := group.Members()
	if len(members) > 0 {
		c.Chase(c.withDescendants(append(slices.Clone(chased), members...), table))
	}
	return len(members), group.Kill()
}

// Left returns the running processes of the session's command: those that have its FIFO open, those
// in its cgroup, their descendants, and those found when it was last signalled. It includes the
// client only if client is set.
func (c *Command) Left(client bool) ([]process.ID, error) {
	group, found, _ := c.Contained()
	found = append(slices.Clone(found), group.Members()...)
	var errs []error
	if c.Witnessed() {
		holders, err := liveness.Writers(c.FIFO.Path)
		found, errs = append(found, holders...), append(errs, err)
	}
	table, err := process.Table()
	errs = append(errs, err)
	return slices.DeleteFunc(c.withDescendants(found, table), func(id process.ID) bool {
		return !id.Alive() || c.spares(id) && !(client && id == c.Peer)
	}), errors.Join(errs...)
}

// spares reports whether a process, and what it has started, is never part of the command.
func (c *Command) spares(id process.ID) bool {
	return id == c.Peer || id.PID == os.Getpid() || id.PID == 1
}

// withDescendants adds the descendants of processes, each once.
func (c *Command) withDescendants(found []process.ID, table []process.Stat) []process.ID {
	var roots []int
	for _, p := range table {
		// The pid of one that has ended may be another process's.
		if slices.Contains(found, p.ID) && !c.spares(p.ID) {
			roots = append(roots, p.PID)
		}
	}
	for _, p := range process.Descendants(table, roots, func(p process.Stat) bool { return p.Ended() || c.spares(p.ID) }) {
		found = append(found, p.ID)
	}
	slices.SortFunc(found, func(a, b process.ID) int { return cmp.Or(a.PID-b.PID, cmp.Compare(a.Started, b.Started)) })
	return slices.Compact(found)
}

// Chase keeps the lock held until the given processes have ended. They are about to be signalled,
// and their descendants may not be found otherwise once they have ended.
func (c *Command) Chase(left []process.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chased = slices.DeleteFunc(slices.Clone(left), func(id process.ID) bool { return id == c.Peer })
}

// NoteRemains reports, once, that processes of a command remain after SIGKILL, or that bakeryd does
// not see them.
func (c *Command) NoteRemains(left []process.ID) {
	if c.remained.Swap(true) {
		return
	}
	pids := process.Numbers(left)
	reason := fmt.Sprintf("%s did not end by SIGKILL: pid %s", process.Count(len(left)), strings.Join(pids, ", "))
	if len(left) == 0 {
		reason = "processes that bakeryd does not see have the FIFO of the lock open"
	}
	c.Report(events.Remains, reason)
	go c.Log.Error("processes of a command that lost its lock are left", "lock", c.Lock, "pids", pids, "containment", c.Containment())
}

// Signal signals what remains of the session's command, and returns the processes found. It spares
// the client unless hard is set: the client may be about to start the command, or ends by itself
// and reports why. killed is the number of processes that were killed with the cgroup just before.
func (c *Command) Signal(why string, hard bool, killed int, signals ...syscall.Signal) ([]process.ID, error) {
	left, err := c.Left(hard)
	c.Chase(left)
	err = errors.Join(err, process.SignalAll(left, signals...))
	c.NoteKill(why, signals[0], max(killed, len(left)))
	return left, err
}

// Kill sends SIGKILL to what remains of the session's command, and returns the processes found
// outside of the cgroup.
func (c *Command) Kill(why string) ([]process.ID, error) {
	table, _ := process.Table() // Left reads it again, and reports errors
	killed, err := c.KillGroup(table)
	left, failed := c.Signal(why, true, killed, syscall.SIGKILL)
	return left, errors.Join(err, failed)
}

// RemainWithin is how long a process may take to end after SIGKILL before it is reported.
const RemainWithin = time.Second

// Stop kills what a session has left running, and blocks until it has ended.
func (c *Command) Stop(ctx context.Context) error {
	if c.FIFO != nil {
		c.FIFO.Watch()
	}
	begun := time.Now()
	for pause := KillPause; c.Remains(); pause = min(2*pause, time.Second) {
		left, err := c.Kill("it has outlived its lock")
		if err != nil {
			c.Log.Warn("stopping a command failed, retrying", "lock", c.Lock, "pid", c.PID, "err", err)
		}
		if time.Since(begun) > RemainWithin && c.Remains() {
			c.NoteRemains(left)
		}
		if retry.Pause(ctx, pause) != nil {
			if c.FIFO != nil {
				c.FIFO.Leave() // the next bakeryd finds the command by the FIFO
			}
			return fmt.Errorf("stop the command under %q: %w", c.Lock, context.Cause(ctx))
		}
	}
	c.Tidy()
	return nil
}

// Tidy removes the FIFO and the cgroup of a command that has ended.
func (c *Command) Tidy() {
	if c.FIFO != nil {
		_ = c.FIFO.Remove() // the next start prunes a file that cannot be removed
	}
	group, _, _ := c.Contained()
	group.Remove()
}

// KillPause is the first pause between two checks for remaining processes.
const KillPause = 20 * time.Millisecond

// NoteKill records, once per signal, that processes under a lock were sent a signal.
func (c *Command) NoteKill(why string, signal syscall.Signal, number int) {
	if number > 0 && c.stopped.Swap(int32(signal)) != int32(signal) {
		c.Report(events.Kill, fmt.Sprintf("%s to %s: %s", unix.SignalName(signal), process.Count(number), why))
	}
}

// CgroupDir returns the directory of the command's cgroup, empty if it has none.
func (c *Command) CgroupDir() string {
	if group, _, _ := c.Contained(); group != nil {
		return group.Dir
	}
	return ""
}
