package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
func ticksNow() (uint64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(t.Nano()) / uint64(clockTick), nil
}

// proc is a process as /proc/PID/stat shows it.
type proc struct {
	pid, parent int
	state       byte
	threads     int
	started     uint64 // in clock ticks since boot; with the pid it tells a process from all others
}

// ended says whether only an exit status is left. A process whose first thread alone has ended shows the
// same state as one that has ended.
func (p proc) ended() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

// isIn compares what does not change in a process's life.
func (p proc) isIn(list []proc) bool {
	return slices.ContainsFunc(list, func(q proc) bool { return p.pid == q.pid && p.started == q.started })
}

func parseStat(text string) (proc, error) {
	// The name is what the process likes it to be, parentheses and line ends included.
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return proc{}, fmt.Errorf("%q has no name in parentheses", text)
	}
	const state, parent, threads, started = 0, 1, 17, 19
	f := strings.Fields(text[end+1:])
	if len(f) <= started || len(f[state]) != 1 {
		return proc{}, fmt.Errorf("%q is too short", text)
	}
	p := proc{state: f[state][0]}
	var errs [4]error
	p.pid, errs[0] = strconv.Atoi(strings.TrimSpace(text[:open]))
	p.parent, errs[1] = strconv.Atoi(f[parent])
	p.threads, errs[2] = strconv.Atoi(f[threads])
	p.started, errs[3] = strconv.ParseUint(f[started], 10, 64)
	return p, errors.Join(errs[:]...)
}

func readStat(pid int) (proc, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	text, err := os.ReadFile(path)
	if err != nil {
		return proc{}, err
	}
	p, err := parseStat(string(text))
	if err != nil {
		return proc{}, fmt.Errorf("read %s: %w", path, err)
	}
	return p, nil
}

// processTable reads all processes, one after the other: what it returns may never have been true at once.
func processTable() ([]proc, error) {
	// The /proc of another pid namespace has other processes under our numbers.
	if self, err := os.Readlink("/proc/self"); err != nil {
		return nil, err
	} else if self != strconv.Itoa(os.Getpid()) {
		return nil, fmt.Errorf("/proc shows process %d as %s", os.Getpid(), self)
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var table []proc
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := readStat(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH): // it has ended
		case errors.Is(err, fs.ErrPermission): // mounted with hidepid; we could not signal it either
		case err != nil:
			return nil, err
		default:
			table = append(table, p)
		}
	}
	return table, nil
}

// descendants returns those of root, parents before their children. Children of root that started before
// since are left out, with all that descends from them.
func descendants(table []proc, root int, since uint64) []proc {
	children := make(map[int][]proc)
	for _, p := range table {
		if p.parent != root || p.started >= since {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	found := slices.Clone(children[root])
	seen := map[int]bool{root: true} // a table that was never true at once may have a circle
	for i := 0; i < len(found); i++ {
		if pid := found[i].pid; !seen[pid] {
			seen[pid] = true
			found = append(found, children[pid]...)
		}
	}
	return found
}

// signal does nothing if the process has ended, even if another one has its number now.
func (p proc) signal(all ...syscall.Signal) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	defer func() { _ = handle.Release() }()
	// Only now that the handle stands for one process its identity says something.
	if now, err := readStat(p.pid); err != nil || now.started != p.started {
		return
	}
	for _, s := range all {
		_ = handle.Signal(s)
	}
}

// childless says whether this process has no child, not even one that ended. As orphans become our children
// in the moment they are orphaned, nothing descends from us then.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil), unix.ECHILD)
}

// survey returns what is alive of the command and its descendants, and reaps those that we have adopted.
func (c *command) survey() ([]proc, error) {
	table, err := processTable()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	for _, p := range table {
		if p.parent == self && p.ended() && !c.is(p) {
			_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG|unix.WALL, nil)
		}
	}
	return slices.DeleteFunc(descendants(table, self, c.since), proc.ended), nil
}

// is says whether p is the command itself. Once that was waited for, its number may be another's.
func (c *command) is(p proc) bool { return p.pid == c.cmd.Process.Pid && !isClosed(c.ended) }

// signalAll signals the command and what is left of its descendants: a parent before its children, lest it
// goes on with what it wanted to do after them.
func (c *command) signalAll(left []proc, all ...syscall.Signal) {
	for _, s := range all {
		c.signal(s)
	}
	for _, p := range left {
		if !c.is(p) {
			p.signal(all...)
		}
	}
}
