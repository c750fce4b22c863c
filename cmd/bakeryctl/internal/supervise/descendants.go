package supervise

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// clockTick is the unit of start times in proc(5), the same on every architecture that Go runs on.
const clockTick = time.Second / 100

// ticksNow returns the start time that proc(5) would show for a process started now.
func ticksNow() uint64 { return uint64(clock.Boottime.Now() / clockTick) }

// childless reports whether this process has no child, not even a zombie. Orphans become its
// children immediately, so a childless process has no descendants.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil), unix.ECHILD)
}

// survey returns the live processes of the command and its descendants, parents before their
// children, and reaps adopted zombies. It includes the processes of --on-lost only if all is true.
func (c *command) survey(all bool) (found []process.ID, err error) {
	table, err := process.Table()
	if err != nil {
		return nil, err
	}
	self := unix.Getpid()
	for _, p := range table {
		if p.Parent == self && p.Ended() && !c.is(p.PID) && !c.guard.is(p.PID) && !c.onLost.is(p.PID) && !c.onRequest.is(p.PID) {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG|unix.WALL, nil)
		}
	}
	var others []process.ID
	if !all {
		others = c.onLost.among(table)
	}
	older := func(p process.Stat) bool { return p.Parent == self && p.Started < c.since }
	for _, p := range process.Descendants(table, []int{self}, older) {
		if !p.Ended() && !slices.Contains(others, p.ID) && !c.guard.is(p.PID) {
			found = append(found, p.ID)
		}
	}
	return found, nil
}

// is reports whether a process is the command itself. After the command was waited for, its PID may
// be reused.
func (c *command) is(pid int) bool { return pid == c.cmd.Process.Pid && !IsClosed(c.ended) }

// terminate sends SIGTERM to the command and its remaining descendants, a parent before its
// children, so that the parent does not continue with its next step when they end. It adds SIGCONT,
// because a stopped process cannot end.
//
// Each process is asked only once, because it may start others to clean up. Processes that started
// after askedAt are therefore not asked.
func (c *command) terminate(left []process.ID) {
	first := c.askedAt == 0
	if first {
		left = append(left, c.group.Members()...) // before any process is asked and starts others to clean up
		c.askedAt = ticksNow()
		c.signal(syscall.SIGTERM)
		c.signal(syscall.SIGCONT)
	}
	for _, id := range left { // later on: those that started while the table was read
		if (first || id.Started < c.askedAt) && !c.is(id.PID) && !slices.Contains(c.asked, id) {
			c.asked = append(c.asked, id)
			_ = id.Signal(syscall.SIGTERM, syscall.SIGCONT) // fails if the process has ended
		}
	}
}

// kill kills the command, its remaining descendants and the script of --on-lost. It returns an
// error if a process could not be killed.
func (c *command) kill(left []process.ID) error {
	err := c.group.Kill()
	c.signal(syscall.SIGKILL)
	for _, id := range left {
		if failed := id.Signal(syscall.SIGKILL); !process.Gone(failed) {
			err = cmp.Or(err, failed)
		}
	}
	c.onLost.signal(syscall.SIGKILL)
	return err
}
