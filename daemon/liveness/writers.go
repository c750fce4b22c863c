package liveness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// Writers returns the processes that have a file open for writing. If it is a session's FIFO,
// these are the running processes of its command. It leaves out this process, and process 1, which
// keeps descriptors for others. Processes may come and go during the scan, and without root those
// of other users are not seen. A caller that must be certain repeats it until the FIFO has no
// writer.
func Writers(path string) ([]process.ID, error) {
	fail := func(err error) ([]process.ID, error) {
		return nil, fmt.Errorf("find the processes that have %s open: %w", path, err)
	}
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
		// A process whose first thread has ended shows descriptors only in its other threads.
		found = s.among(pids, s.hasInThread)
	}
	return found, nil
}

// holderScan looks for processes that have a file open.
type holderScan struct {
	name string // last element of the file's path
	file unix.Stat_t
}

func (s *holderScan) among(pids []int, has func(pid int) bool) (found []process.ID) {
	for _, pid := range pids {
		// The identity comes first: if the pid is reused between the two, the process is not found,
		// instead of found as the wrong one.
		id, err := process.Of(pid)
		if err == nil && pid != os.Getpid() && pid != 1 && has(pid) {
			found = append(found, id)
		}
	}
	return found
}

func (s *holderScan) hasInThread(pid int) bool {
	threads, _ := process.Threads(pid)
	return slices.ContainsFunc(threads, func(tid int) bool {
		return tid != pid && s.has(fmt.Sprintf("/proc/%d/task/%d", pid, tid))
	})
}

// has checks the descriptors of one process or thread, as far as permitted.
func (s *holderScan) has(proc string) bool {
	dir, err := os.Open(proc + "/fd")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	return slices.ContainsFunc(names, func(fd string) bool { return s.isWriter(proc + "/fd/" + fd) })
}

// isWriter reads the inode only if the name matches. On a network file system that hangs it would
// block, and that may be the reason why processes are to be stopped.
func (s *holderScan) isWriter(link string) bool {
	target, err := os.Readlink(link)
	if err != nil || filepath.Base(strings.TrimSuffix(target, " (deleted)")) != s.name {
		return false
	}
	var st unix.Stat_t
	// the mode of the link is that of the descriptor
	if unix.Lstat(link, &st) != nil || st.Mode&unix.S_IWUSR == 0 {
		return false
	}
	return unix.Stat(link, &st) == nil && st.Dev == s.file.Dev && st.Ino == s.file.Ino
}
