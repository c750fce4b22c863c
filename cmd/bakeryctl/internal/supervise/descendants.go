package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// clockTick is the unit of start times in proc(5), the same on every architecture that Go runs on.
const clockTick = time.Second / 100

// adoptOrphans makes this process the parent of every descendant whose own parent ends, in place of init.
// So whoever descends from the command can be found for as long as we run, also what made itself a daemon.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt what the command leaves running: %w", err)
	}
	return nil
}

// ticksNow is what proc(5) would show as the start time of a process that starts now.
func ticksNow() uint64 { return uint64(clock.Boottime.Now() / clockTick) }

// isIn compares what does not change in a process's life.
func isIn(p process.Stat, list []process.Stat) bool {
	return slices.ContainsFunc(list, func(q process.Stat) bool { return p.ID == q.ID })
}

// descendants returns this process's own, parents before their children. Children that started
// before since are left out, with all that descend from them.
func descendants(table []process.Stat, since uint64) []process.Stat {
	self := unix.Getpid()
	return process.Descendants(table, []int{self}, func(p process.Stat) bool { return p.Parent == self && p.Started < since })
}

// childless says whether this process has no child, not even one that ended. As orphans become our children
// in the moment they are orphaned, nothing descends from us then.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil), unix.ECHILD)
}

// survey returns what is alive of the command and its descendants, and reaps those that we have adopted. What
// --on-lost has started is among them only if all are wanted.
func (c *command) survey(all bool) ([]process.Stat, error) {
	table, err := process.Table()
	if err != nil {
		return nil, err
	}
	self := unix.Getpid()
	for _, p := range table {
		if p.Parent == self && p.Ended() && !c.is(p) && !c.guard.is(p) && !c.onLost.is(p) && !c.onRequest.is(p) {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG|unix.WALL, nil)
		}
	}
	var others []process.Stat
	if !all {
		others = c.onLost.among(table)
	}
	return slices.DeleteFunc(descendants(table, c.since), func(p process.Stat) bool {
		return p.Ended() || isIn(p, others) || c.guard.is(p)
	}), nil
}

// is says whether p is the command itself. Once that was waited for, its number may be another's.
func (c *command) is(p process.Stat) bool { return p.PID == c.cmd.Process.Pid && !IsClosed(c.ended) }

// terminate asks the command and what is left of its descendants to end: a parent before its children, lest it
// goes on with what it wanted to do after them. Who is stopped has to go on to end.
//
// Everybody is asked once only, for they may start others to clean up: these are those that are not older.
func (c *command) terminate(left []process.Stat) {
	ask := func(p process.Stat) {
		c.asked = append(c.asked, p)
		_ = p.Signal(syscall.SIGTERM, syscall.SIGCONT) // who has ended need not be asked
	}
	if c.askedAt != 0 {
		for _, p := range left { // it was started while the table was read
			if p.Started < c.askedAt && !c.is(p) && !isIn(p, c.asked) {
				ask(p)
			}
		}
		return
	}
	members := c.cgroup.Members() // before any is asked, and cleans up
	c.askedAt = ticksNow()
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
	for _, p := range left {
		if !c.is(p) {
			ask(p)
		}
	}
	for _, id := range members {
		if id.PID != c.cmd.Process.Pid && !slices.ContainsFunc(left, func(p process.Stat) bool { return p.ID == id }) {
			ask(process.Stat{ID: id})
		}
	}
}

// kill kills the command, what is left of its descendants, and the script of --on-lost. It returns
// why one could not be killed.
func (c *command) kill(left []process.Stat) error {
	err := c.cgroup.Kill()
	c.signal(syscall.SIGKILL)
	for _, p := range left {
		if c.is(p) {
			continue
		}
		if no := p.Signal(syscall.SIGKILL); no != nil && !process.Gone(no) {
			err = cmp.Or(err, no)
		}
	}
	c.onLost.kill()
	return err
}
