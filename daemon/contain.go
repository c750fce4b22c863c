package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// Containment: the command of a session gets a cgroup below that of its wrapper, which both find by
// the same name. The wrapper creates it if it may, and starts the command in it. If not, bakeryd
// creates it and moves the process that is about to become the command into it. With it bakeryd
// stops all processes of a command, even if the wrapper is gone, whatever they closed, became or
// forked. Without it bakeryd finds only the processes that have the session's FIFO open, and their
// descendants.

// errNoGroup is the reason why a command that bakeryd does not stop is not contained.
var errNoGroup = errors.New("it has no part in the lock, as with --close")

// errHidden is the reason why the command of a client in another pid namespace is not contained.
var errHidden = errors.New("bakeryd cannot see the client's process: it is in another pid namespace")

// findGroup determines the cgroup of the session's command, which may not exist yet.
func (s *session) findGroup() {
	if s.peer.PID == 0 {
		s.weak = errHidden
		return
	}
	dirs, err := cgroup.Parents(s.peer.PID)
	if err != nil {
		s.weak = err
		return
	}
	w, err := cgroup.WrapperOf(s.peer.PID, s.id)
	switch {
	case err != nil:
		err = fmt.Errorf("bakeryd of uid %d cannot inspect process %d of uid %d: %w", os.Geteuid(), s.peer.PID, s.uid, err)
	case w.Started != s.peer.Started:
		err = fmt.Errorf("process %d has ended", s.peer.PID)
	}
	dir := filepath.Join(dirs[0], w.Name())
	if err == nil {
		err = handover.CheckCgroup(dir)
	}
	if err != nil {
		s.weak = err
		return
	}
	s.group = &cgroup.Group{Dir: dir}
}

// regroup restores the recorded cgroup of the command.
func (s *session) regroup(r handover.Session) {
	if r.Cgroup != "" {
		s.group = &cgroup.Group{Dir: r.Cgroup}
	}
}

// contain moves a process into the session's cgroup. The kernel reports the process by the pid that
// it had when it connected, which may be another process's by now. Therefore it must be a process
// of the user that connected. It must be in the client's cgroup, so that it does not escape its
// limits.
func (s *session) contain(conn *net.UnixConn) error {
	s.mu.Lock()
	group, weak := s.group, s.weak
	s.mu.Unlock()
	if group == nil {
		return fmt.Errorf("%w: %w", api.ErrUncontained, cmp.Or(weak, errNoGroup))
	}
	member, uid := peer.Of(conn)
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
	w, _ := cgroup.Named(filepath.Base(group.Dir)) // findGroup made the name
	cgroup.Prune(parent)
	g, err := cgroup.Make([]string{parent}, w)
	if err == nil {
		// If there is no bakeryd, the wrapper stops the command, even one that has become another
		// user.
		err = errors.Join(g.AllowKill(s.uid), g.Add(member.PID))
	}
	if err != nil {
		g.Remove() // fails if a process is in it; a threaded cgroup takes none
		err = fmt.Errorf("move process %d into a cgroup: %w", member.PID, err)
		s.mu.Lock()
		s.weak = err
		s.mu.Unlock()
		return fmt.Errorf("%w: %w", api.ErrUncontained, err)
	}
	if peer.HungUp(conn) || !member.Alive() {
		// Its pid may be another process's by now, which must not be killed.
		s.mu.Lock()
		s.group, s.weak = nil, errors.New("the process that was to be contained has ended")
		s.mu.Unlock()
		return fmt.Errorf("%w: process %d has ended", api.ErrInvalid, member.PID)
	}
	return nil
}

// running reports whether the command of the session or processes that it left are running. While
// they are, the lock is held. With --close the lock is the wrapper's alone, so they do not count.
// Once the lock is lost, the session stays until they have been killed, because the guard looks at
// sessions that hold a lock.
func (s *session) running() bool { return (!s.alone || s.lost()) && s.remains() }

// lost reports whether the lock was granted and its lease is lost.
func (s *session) lost() bool { return s.decided() && s.hold != nil && s.hold.Err() != nil }

// remains reports whether there is a process to stop when the lock is lost.
func (s *session) remains() bool {
	group, chased := s.contained()
	return s.witnessed() || group.Populated() || slices.ContainsFunc(chased, process.ID.Alive)
}

// witnessed reports whether a process has the FIFO of the session open.
func (s *session) witnessed() bool { return s.fifo != nil && s.fifo.Alive() }

// contained returns the cgroup of the command, nil if none, and its processes that were found
// before.
func (s *session) contained() (*cgroup.Group, []process.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.group, s.chased
}

// containment describes how certain it is that all of a command is stopped. It is empty if there
// may be no command.
func (s *session) containment() string {
	s.mu.Lock()
	group, weak := s.group, s.weak
	s.mu.Unlock()
	switch {
	case group != nil && group.Exists():
		if err := checkKill(group); err != nil {
			return "weak: " + err.Error()
		}
		return "cgroup"
	case s.alone:
		return ""
	case weak != nil:
		return "weak: " + weak.Error()
	}
	return "weak: the command has no cgroup of its own"
}

func checkKill(group *cgroup.Group) error {
	if err := group.CheckKill(); err != nil {
		return fmt.Errorf("bakeryd may not kill the cgroup of the command: %w", err)
	}
	return nil
}

// uncontainable returns the reason why bakeryd cannot find or kill the cgroup of the command,
// wherever that is created; empty if it can.
func (s *session) uncontainable() string {
	s.mu.Lock()
	group, err := s.group, s.weak
	s.mu.Unlock()
	if group != nil && group.Exists() {
		err = checkKill(group)
	} else if group != nil {
		err = group.CheckMake() // the wrapper may be about to create it
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// killGroup kills all processes in the command's cgroup, and returns their number. Descendants may
// have been moved elsewhere. They are chased, because their parents end now.
func (s *session) killGroup(table []process.Stat) (int, error) {
	group, chased := s.contained()
	members := group.Members()
	if len(members) > 0 {
		s.chase(s.withDescendants(append(slices.Clone(chased), members...), table))
	}
	return len(members), group.Kill()
}

// leftOver reports whether the client is gone while its command runs, and the processes of that
// command.
func (s *session) leftOver() (pids []int, orphan bool) {
	s.mu.Lock()
	orphan = s.orphan
	s.mu.Unlock()
	if !orphan {
		return nil, false
	}
	found, _ := s.left(false) // they may have ended by now, or be another user's
	for _, p := range found {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	return pids, true
}

// left returns the running processes of the session's command: those that have its FIFO open, those
// in its cgroup, their descendants, and those found when it was last signalled. It includes the
// client only if client is set.
func (s *session) left(client bool) ([]process.ID, error) {
	group, found := s.contained()
	found = append(slices.Clone(found), group.Members()...)
	var errs []error
	if s.witnessed() {
		holders, err := liveness.Writers(s.fifo.Path)
		found, errs = append(found, holders...), append(errs, err)
	}
	table, err := process.Table()
	errs = append(errs, err)
	return slices.DeleteFunc(s.withDescendants(found, table), func(id process.ID) bool {
		return !id.Alive() || s.spares(id) && !(client && id == s.peer)
	}), errors.Join(errs...)
}

// spares reports whether a process, and what it has started, is never part of the command.
func (s *session) spares(id process.ID) bool {
	return id == s.peer || id.PID == os.Getpid() || id.PID == 1
}

// withDescendants adds the descendants of processes, each once.
func (s *session) withDescendants(found []process.ID, table []process.Stat) []process.ID {
	var roots []int
	for _, p := range table {
		// The pid of one that has ended may be another process's.
		if slices.Contains(found, p.ID) && !s.spares(p.ID) {
			roots = append(roots, p.PID)
		}
	}
	for _, p := range process.Descendants(table, roots, func(p process.Stat) bool { return p.Ended() || s.spares(p.ID) }) {
		found = append(found, p.ID)
	}
	slices.SortFunc(found, func(a, b process.ID) int { return cmp.Or(a.PID-b.PID, cmp.Compare(a.Started, b.Started)) })
	return slices.Compact(found)
}

// chase keeps the lock held until the given processes have ended. They are about to be signalled,
// and their descendants may not be found otherwise once they have ended.
func (s *session) chase(left []process.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chased = slices.DeleteFunc(slices.Clone(left), func(id process.ID) bool { return id == s.peer })
}

// noteRemains reports, once, that processes of a command remain after SIGKILL, or that bakeryd does
// not see them.
func (s *session) noteRemains(left []process.ID) {
	s.mu.Lock()
	noted := s.remained
	s.remained = true
	s.mu.Unlock()
	if noted {
		return
	}
	pids := make([]string, len(left))
	for i, id := range left {
		pids[i] = strconv.Itoa(id.PID)
	}
	e := s.happening(events.Remains)
	e.Reason = fmt.Sprintf("%s did not end by SIGKILL: pid %s", countOf(len(left), "process", "processes"), strings.Join(pids, ", "))
	if len(left) == 0 {
		e.Reason = "processes that bakeryd does not see have the FIFO of the lock open"
	}
	s.all.d.observer.Observe(e)
	go s.all.d.log.Error("processes of a command that lost its lock are left", "lock", s.req.Name, "pids", pids, "containment", s.containment())
}

// noteRemains reports that for all holds. Their lease is over.
func (ss *sessions) noteRemains() {
	held, _ := ss.holding()
	for _, s := range held {
		if _, chased := s.contained(); s.remains() {
			s.noteRemains(slices.DeleteFunc(slices.Clone(chased), func(id process.ID) bool { return !id.Alive() }))
		}
	}
}
