package liveness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// Writers returns the processes that have a file open for writing: what is
// alive of a command, if the file is its witness. This process and the first
// one, who keeps descriptors for others, are left out. Processes may come and
// go meanwhile, and without root those of other users are not seen: whoever
// must be sure repeats it until the witness is gone.
func Writers(path string) ([]process.ID, error) {
	fail := func(err error) ([]process.ID, error) { return nil, fmt.Errorf("find who has %s open: %w", path, err) }
	if err := process.CheckProc(); err != nil {
		return fail(err)
	}
	s := holderScan{name: filepath.Base(path)}
	if err := unix.Lstat(path, &s.file); err != nil {
		return fail(err)
	}
	pids, err := process.List()
	if err != nil {
		return fail(err)
	}
	found := s.among(pids, func(pid int) bool { return s.has("/proc/" + strconv.Itoa(pid)) })
	if len(found) == 0 {
		// A process whose first thread has ended shows descriptors in its other threads only.
		found = s.among(pids, s.hasInThread)
	}
	return found, nil
}

// holderScan looks for who has a file open.
type holderScan struct {
	name string // last element of the file's path
	file unix.Stat_t
}

func (s *holderScan) among(pids []int, has func(pid int) bool) (found []process.ID) {
	for _, pid := range pids {
		// The identity comes first: a number that changes hands between the two is not found, rather
		// than found as the wrong process.
		id, err := process.Of(pid)
		if err == nil && pid != os.Getpid() && pid != 1 && has(pid) {
			found = append(found, id)
		}
	}
	return found
}

func (s *holderScan) hasInThread(pid int) bool {
	threads, _ := process.Threads(pid)
	for _, tid := range threads {
		if tid != pid && s.has(fmt.Sprintf("/proc/%d/task/%d", pid, tid)) {
			return true
		}
	}
	return false
}

// has looks through the descriptors of one process or thread, as far as it may.
func (s *holderScan) has(proc string) bool {
	dir, err := os.Open(proc + "/fd")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, fd := range names {
		if s.isWriter(proc + "/fd/" + fd) {
			return true
		}
	}
	return false
}

// isWriter asks for the inode only where the name fits: on a network file
// system that hangs it would not return, and that may be just why processes
// are to be stopped.
func (s *holderScan) isWriter(link string) bool {
	target, err := os.Readlink(link)
	if err != nil || filepath.Base(strings.TrimSuffix(target, " (deleted)")) != s.name {
		return false
	}
	var st unix.Stat_t
	if unix.Lstat(link, &st) != nil || st.Mode&unix.S_IWUSR == 0 { // the mode of the link is that of the descriptor
		return false
	}
	return unix.Stat(link, &st) == nil && st.Dev == s.file.Dev && st.Ino == s.file.Ino
}

// Signal signals all of them that have not ended meanwhile.
func Signal(holders []process.ID, signals ...syscall.Signal) error {
	var errs []error
	for _, h := range holders {
		if err := h.Signal(signals...); err != nil && !process.Gone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
