// Package liveness has the FIFOs by which bakeryd knows whether a command, or a process that it left running, lives. They
// inherit its write end, which the kernel closes with the last of them. The FIFO outlives bakeryd, and the next process
// opens it again. The package knows files and processes, and nothing of locks.
package liveness

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	pipeSize   = 64 << 10 // capacity of a pipe by default
	drainEvery = 10 * time.Millisecond
)

// FIFO is the FIFO of one session.
//
// No process should write into it. bakeryd discards what is written, so that no writer blocks.
// While no bakeryd runs, a writer may get SIGPIPE.
type FIFO struct {
	Path string
	uid  int      // its user; fdlimit.UnknownUser if not known
	file *os.File // the read end
	raw  syscall.RawConn

	watching atomic.Bool
	none     chan struct{} // closed when there was no writer
	ended    chan struct{} // closed when run has ended
	left     sync.Once     // for Leave
}

// Name returns the name of a session's FIFO. It includes the lockspace and the host id,
// because several bakeryds may share a runtime directory.
func Name(uuid layout.UUID, host int, session string) string {
	return fmt.Sprintf("%s-%d-%s.fifo", uuid, host, session)
}

// Make creates a FIFO that only one user may open for writing, so that no other user can keep
// the lock. A bakeryd that is not root cannot give it to that user alone, but to all that may use
// the socket.
func Make(dir, name string, uid int) (*FIFO, error) {
	path := filepath.Join(dir, name)
	fail := func(err error) (*FIFO, error) {
		return nil, fmt.Errorf("create liveness FIFO %s: %w", path, text.WithoutPath(err))
	}
	if err := fdlimit.Clients().Take(uid); err != nil {
		return fail(err)
	}
	defer fdlimit.Clients().Give(uid) // attach takes its own
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fail(err)
	}
	w, err := attach(path, uid)
	if err == nil {
		err = giveTo(uid, w.file)
	}
	if err != nil {
		if w != nil {
			w.Leave()
		}
		return fail(errors.Join(err, os.Remove(path)))
	}
	return w, nil
}

func giveTo(uid int, f *os.File) error {
	if uid == os.Geteuid() {
		return nil
	}
	// whatever the umask; before the chown, after which chmod needs CAP_FOWNER
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	// The group stays this process's: the next process recognizes the FIFO by it.
	if err := f.Chown(uid, os.Getegid()); err == nil {
		return nil
	}
	if gid := access.SocketGID(); gid >= 0 {
		if err := f.Chown(-1, gid); err != nil && !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("give it to group %s: %w", access.SocketGroup, err)
		}
	}
	return f.Chmod(0o620) // whatever the umask
}

// Open opens the FIFO of a previous process. It refuses any other file at that path.
func Open(path string, uid int) (*FIFO, error) {
	w, err := attach(path, uid)
	if err != nil {
		return nil, fmt.Errorf("open liveness FIFO %s: %w", path, text.WithoutPath(err))
	}
	return w, nil
}

func attach(path string, uid int) (*FIFO, error) {
	// Opening another kind of file may have effects, so check it first.
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := handover.CheckOwner(info, os.ModeNamedPipe); err != nil && !givenAway(info) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(info, now) {
		err = errors.New("replaced while it was opened")
	}
	raw, rawErr := f.SyscallConn()
	if err = cmp.Or(err, rawErr); err != nil {
		f.Close()
		return nil, err
	}
	fdlimit.Clients().MustTake(uid)
	w := &FIFO{Path: path, uid: uid, file: f, raw: raw, none: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w, nil
}

// givenAway reports whether a file can be a FIFO that root has created for a client: only root
// gives files of its group to other users.
func givenAway(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().Type() == os.ModeNamedPipe && os.Geteuid() == 0 && int(st.Gid) == os.Getegid()
}

// look reads what is in the FIFO, and reports whether it has a writer, or had one that wrote. On Linux
// a read of an empty FIFO returns 0 if it has none, else EAGAIN; no other error is possible, and none
// would prove that there is no writer. If there is data, POLLHUP shows that there is no writer. But
// POLLHUP is never set before the first writer has opened the FIFO.
func look(fd int, buf []byte) (read int, writer bool) {
	p := []unix.PollFd{{Fd: int32(fd)}}
	if n, err := unix.Poll(p, 0); err == nil && n > 0 && p[0].Revents&unix.POLLHUP != 0 {
		return 0, false
	}
	for {
		if n, err := unix.Read(fd, buf); !errors.Is(err, unix.EINTR) {
			return max(n, 0), n != 0
		}
	}
}

// run reads until the FIFO is closed, or has no writer after Watch.
func (w *FIFO) run() {
	defer close(w.ended)
	buf := make([]byte, 512)
	for {
		var n int
		var writer bool
		err := w.raw.Read(func(fd uintptr) bool {
			n, writer = look(int(fd), buf)
			// If this returns false, it is called again after a write, or when the last writer has
			// gone.
			return n > 0 || !writer && w.watching.Load()
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // woken by Watch: check again
			_ = w.file.SetReadDeadline(time.Time{})
		case err != nil:
			return // closed
		case !writer:
			close(w.none)
			return
		default:
			// One read takes all that a pipe usually holds. The pause limits the load of an endless
			// writer.
			buf = slices.Grow(buf, pipeSize)[:pipeSize]
			time.Sleep(drainEvery)
		}
	}
}

// Watch begins to wait for a time without a writer, now or later. Before the command can have
// opened the FIFO there is none. Therefore Watch is called when the client's connection has closed,
// or at a restart. It may be called again.
func (w *FIFO) Watch() {
	if w.watching.CompareAndSwap(false, true) {
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // wakes run
	}
}

// Gone returns a channel that is closed when no writer is seen for the first time since Watch. If a
// writer comes just as the last one goes, that may be a later time. It is never a time with a
// writer.
func (w *FIFO) Gone() <-chan struct{} { return w.none }

// Alive reports whether there is a writer now.
func (w *FIFO) Alive() (writer bool) {
	_ = w.raw.Control(func(fd uintptr) {
		buf := make([]byte, 4096)
		for n := range 2 * pipeSize / len(buf) { // more means that a process keeps writing
			if n, writer = look(int(fd), buf); n == 0 {
				return
			}
		}
	})
	return writer
}

// Remove removes the FIFO and stops watching it. It is called when no writer is left, because
// Writers needs the file to find the processes that have it open. It may be called again.
func (w *FIFO) Remove() error {
	err := os.Remove(w.Path)
	w.Leave()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove liveness FIFO: %w", err)
	}
	return nil
}

// Leave leaves the FIFO to the next process. From then on Alive returns false.
func (w *FIFO) Leave() {
	w.left.Do(func() {
		w.file.Close()
		fdlimit.Clients().Give(w.uid)
	})
	<-w.ended
}

// Hosts returns the host ids of a lockspace for which there are FIFOs.
func Hosts(dir string, uuid layout.UUID) []int { return handover.Hosts(dir, uuid, ".fifo") }

// Prune removes the FIFOs of a lockspace and host id that belong to no session. It
// returns, and does not remove, those that have a writer: a command that has outlived its hold.
// Called with the id's lock file held.
func Prune(dir string, uuid layout.UUID, host int, belongs func(session string) bool) (strays []string, err error) {
	names, err := hostid.Files(dir, uuid, ".fifo")
	if err != nil {
		return nil, fmt.Errorf("list liveness FIFOs: %w", err)
	}
	var errs []error
	for _, name := range names {
		session, isOurs := strings.CutPrefix(name, strconv.Itoa(host)+"-")
		if !isOurs || handover.CheckSessionID(session) != nil || belongs(session) {
			continue
		}
		path := filepath.Join(dir, Name(uuid, host, session))
		w, err := Open(path, fdlimit.UnknownUser)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case w.Alive():
			w.Leave()
			strays = append(strays, path)
		default:
			errs = append(errs, w.Remove())
		}
	}
	return strays, errors.Join(errs...)
}

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
