// Package process identifies processes by more than their number, which is reused, and signals
// them. It knows proc(5) and pidfds. It never knows why a process must stop. Begin with ID.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ID identifies one process from its start to its end.
type ID struct {
	PID     int
	Started uint64 // in clock ticks since boot, as in proc(5)
}

// Stat is the state of a process in /proc/PID/stat.
type Stat struct {
	ID
	Parent  int
	State   byte
	Threads int
}

// Ended reports whether only an exit status is left. A process with an ended first thread and
// other threads shows the same state.
func (s Stat) Ended() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// Of returns the process that has a number now. If there is none, Gone is true for the error.
func Of(pid int) (ID, error) {
	s, err := Read(pid)
	return s.ID, err
}

// Gone reports whether an error means that there is no such process.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrProcessDone)
}

// Read returns the state of a process.
func Read(pid int) (Stat, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	text, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, err
	}
	s, err := parse(string(text))
	if err != nil {
		return Stat{}, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

func parse(text string) (Stat, error) {
	// The process chooses its name, which may contain parentheses and line ends.
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("%q has no name in parentheses", text)
	}
	const state, parent, threads, started = 0, 1, 17, 19
	f := strings.Fields(text[end+1:])
	if len(f) <= started || len(f[state]) != 1 {
		return Stat{}, fmt.Errorf("%q is too short", text)
	}
	s := Stat{State: f[state][0]}
	var errs [4]error
	s.PID, errs[0] = strconv.Atoi(strings.TrimSpace(text[:open]))
	s.Parent, errs[1] = strconv.Atoi(f[parent])
	s.Threads, errs[2] = strconv.Atoi(f[threads])
	s.Started, errs[3] = strconv.ParseUint(f[started], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return Stat{}, err
	}
	return s, nil
}

// Alive reports whether the process has not ended. If it cannot be read, it counts as alive as
// long as a process has its number.
func (id ID) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	s, err := Read(id.PID)
	switch {
	case err == nil:
		return s.Started == id.Started && !s.Ended()
	case Gone(err): // or /proc is mounted with hidepid
		return errors.Is(unix.Kill(id.PID, 0), unix.EPERM)
	default:
		return true
	}
}

// Killed reports whether the process that has this number was killed, and has threads that have not
// ended. A thread in IO that does not return cannot end.
func Killed(pid int) bool {
	s, err := Read(pid)
	if err != nil {
		return false
	}
	return s.State == 'Z' && s.Threads > 1 || slices.ContainsFunc([]string{"SigPnd:", "ShdPnd:"}, func(name string) bool {
		words, err := status(pid, name)
		if err != nil || len(words) != 1 {
			return false
		}
		pending, err := strconv.ParseUint(words[0], 16, 64)
		return err == nil && pending&(1<<(unix.SIGKILL-1)) != 0
	})
}

// RunsAs reports whether all user ids of the process that has this number are those of one user.
func (id ID) RunsAs(uid int) (bool, error) {
	ids, err := status(id.PID, "Uid:")
	if err == nil && ids == nil {
		err = fmt.Errorf("process %d has no user ids", id.PID)
	}
	return err == nil && !slices.ContainsFunc(ids, func(f string) bool { return f != strconv.Itoa(uid) }), err
}

// status returns the words of a line of /proc/PID/status, nil if there is no such line.
func status(pid int, name string) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if words, found := strings.CutPrefix(line, name); found {
			return strings.Fields(words), nil
		}
	}
	return nil, nil
}

// Signal sends signals to the process, one after the other, and never to another process that has
// its number now. If the process has ended, Gone is true for the error.
func (id ID) Signal(signals ...syscall.Signal) error {
	if id.PID <= 0 {
		return fmt.Errorf("signal process %d: %w", id.PID, os.ErrProcessDone)
	}
	handle, err := os.FindProcess(id.PID)
	if err != nil {
		return fmt.Errorf("find process %d: %w", id.PID, err)
	}
	defer func() { _ = handle.Release() }()
	// The start time is read only now that the handle refers to one process.
	now, err := Of(id.PID)
	if err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	if now != id {
		return fmt.Errorf("signal process %d: %w", id.PID, os.ErrProcessDone)
	}
	for _, s := range signals {
		if err := handle.Signal(s); err != nil {
			return fmt.Errorf("send %v to process %d: %w", s, id.PID, err)
		}
	}
	return nil
}

// Numbers returns the numbers of processes for a message.
func Numbers(ids []ID) []string {
	numbers := make([]string, len(ids))
	for i, id := range ids {
		numbers[i] = strconv.Itoa(id.PID)
	}
	return numbers
}

// SignalAll sends signals to each process that has not ended.
func SignalAll(ids []ID, signals ...syscall.Signal) error {
	var errs []error
	for _, id := range ids {
		if err := id.Signal(signals...); !Gone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// CheckProc returns an error if /proc belongs to another pid namespace: it has other processes
// under our numbers.
func CheckProc() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return err
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("/proc shows process %d as %s", os.Getpid(), self)
	}
	return nil
}

// Innermost returns the number of a process in its own pid namespace, and the inode number of
// that namespace.
func Innermost(pid int) (inner int, namespace uint64, err error) {
	dir := "/proc/" + strconv.Itoa(pid)
	numbers, err := status(pid, "NSpid:")
	if err != nil {
		return 0, 0, err
	}
	inner = pid // Linux before 4.1 has no such line
	if n := len(numbers); n > 0 {
		if inner, err = strconv.Atoi(numbers[n-1]); err != nil {
			return 0, 0, fmt.Errorf("read %s/status: %w", dir, err)
		}
	}
	link, err := os.Readlink(dir + "/ns/pid")
	if err == nil {
		namespace, err = strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]"), 10, 64)
	}
	return inner, namespace, err
}

// List returns the numbers of all processes. It is no snapshot: processes may start and end
// during the read.
func List() ([]int, error) { return numbers("/proc") }

// Threads returns the numbers of a process's threads.
func Threads(pid int) ([]int, error) { return numbers("/proc/" + strconv.Itoa(pid) + "/task") }

func numbers(path string) ([]int, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		if n, err := strconv.Atoi(entry.Name()); err == nil {
			found = append(found, n)
		}
	}
	return found, nil
}
