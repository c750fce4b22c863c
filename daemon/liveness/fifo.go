// Package liveness has the FIFOs by which bakeryd knows whether a command, or a process that it left running, lives. They
// inherit its write end, which the kernel closes with the last of them. The FIFO outlives bakeryd, and the next process
// opens it again. The package knows files and processes, and nothing of locks.
package liveness

import (
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
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	pipeSize   = 64 << 10 // default capacity of a pipe
	drainEvery = 10 * time.Millisecond
)

// FIFO is the FIFO of one session. Nothing should be written into it. FIFO discards what is written, so that no writer
// blocks; while no bakeryd runs, a writer may get SIGPIPE.
type FIFO struct {
	Path string
	uid  int      // whose it is; UnknownUser: that is not known
	file *os.File // the read end
	raw  rawControl

	watching atomic.Bool
	none     chan struct{} // closed at a moment without a writer
	ended    chan struct{} // closed when run returns
	once     sync.Once     // of Watch
	left     sync.Once     // of Leave
}

// rawControl is what is needed of syscall.RawConn.
type rawControl interface {
	Control(f func(fd uintptr)) error
	Read(f func(fd uintptr) bool) error
}

// Name returns the file name of the FIFO of a session. It contains the lockspace and the host id, because several
// bakeryds may share a runtime directory.
func Name(uuid layout.UUID, host int, session string) string {
	return fmt.Sprintf("%s-%d-%s.fifo", uuid, host, session)
}

// Make makes a FIFO that one user may open for writing, so that no other user keeps the lock by it. A bakeryd that is not
// root cannot give it to that user alone: it gives it to the group of the socket. Make returns api.ErrOverload if the
// user has no descriptor left, and the errors of mkfifo(3), open(2) and chown(2).
func Make(dir, name string, uid int) (*FIFO, error) {
	path := filepath.Join(dir, name)
	fail := func(err error) (*FIFO, error) {
		return nil, fmt.Errorf("make witness %s: %w", path, text.WithoutPath(err))
	}
	if err := fdlimit.Clients().Take(uid); err != nil {
		return fail(err)
	}
	defer fdlimit.Clients().Give(uid) // attachWitness has its own
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fail(err)
	}
	w, err := attachWitness(path, uid)
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
	if err := f.Chmod(0o600); err != nil { // whatever the umask; before it is another's, whose mode it takes CAP_FOWNER to set
		return err
	}
	// The group stays this process's: by it a successor knows the FIFO.
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

// Open opens a FIFO of the previous process. It refuses a file of another kind or owner.
func Open(path string, uid int) (*FIFO, error) {
	w, err := attachWitness(path, uid)
	if err != nil {
		return nil, fmt.Errorf("open witness %s: %w", path, text.WithoutPath(err))
	}
	return w, nil
}

func attachWitness(path string, uid int) (*FIFO, error) {
	// Opening a file of another kind might have effects.
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := handover.IsOwn(info, os.ModeNamedPipe); err != nil && !givenAway(info) {
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
	if err != nil {
		f.Close()
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	fdlimit.Clients().MustTake(uid)
	w := &FIFO{Path: path, uid: uid, file: f, raw: raw, none: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w, nil
}

// givenAway tells whether a file can be a FIFO that root has made for a client: only root gives files of its group to
// other users.
func givenAway(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().Type() == os.ModeNamedPipe && os.Geteuid() == 0 && int(st.Gid) == os.Getegid()
}

// writers is the result of one look at the read end.
type writers int

const (
	noWriter writers = iota
	someWriter
	dataRead // a writer may still exist, or not
)

// look reports whether the FIFO has a writer. On Linux a read of an empty FIFO returns 0 if it has none, otherwise EAGAIN.
// If there is data, POLLHUP decides; it is not set before the first writer.
func look(fd int, buf []byte) writers {
	p := []unix.PollFd{{Fd: int32(fd)}}
	if n, err := unix.Poll(p, 0); err == nil && n > 0 && p[0].Revents&unix.POLLHUP != 0 {
		return noWriter
	}
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return someWriter // EAGAIN; no other error proves that the writer is gone
		case n == 0:
			return noWriter
		default:
			return dataRead
		}
	}
}

// run reads until the witness is closed, or gone.
func (w *FIFO) run() {
	defer close(w.ended)
	buf := make([]byte, 512)
	for {
		var seen writers
		err := w.raw.Read(func(fd uintptr) bool {
			seen = look(int(fd), buf)
			// If not done, it is called again when somebody wrote, or the last writer has gone.
			return seen == dataRead || seen == noWriter && w.watching.Load()
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // by watch: look again
			_ = w.file.SetReadDeadline(time.Time{})
		case err != nil:
			return // closed
		case seen == noWriter:
			close(w.none)
			return
		default:
			// All that a pipe usually holds goes at once, but who writes without end keeps no processor busy.
			buf = slices.Grow(buf, pipeSize)[:pipeSize]
			time.Sleep(drainEvery)
		}
	}
}

// Watch begins to wait for a moment without a writer: now or later. Before the
// command can have opened the FIFO there is none, so it is called when the
// client's connection has closed, or at a restart. It may be called again.
func (w *FIFO) Watch() {
	w.once.Do(func() {
		w.watching.Store(true)
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // wakes run
	})
}

// Gone is closed at the first moment since watch at which it is seen that
// there is no writer. If one comes in the very moment in which the last one
// goes, it may be a later one; it is never one with a writer.
func (w *FIFO) Gone() <-chan struct{} { return w.none }

// Alive tells whether there is a writer now.
func (w *FIFO) Alive() bool {
	seen := noWriter
	_ = w.raw.Control(func(fd uintptr) {
		buf := make([]byte, 4096)
		for range 2 * pipeSize / len(buf) { // then somebody is filling it up meanwhile
			if seen = look(int(fd), buf); seen != dataRead {
				return
			}
		}
	})
	return seen != noWriter
}

// Remove ends the witness and removes it: when it is gone, for holdersOf cannot
// find by it any more who has it open. It may be called again.
func (w *FIFO) Remove() error {
	err := os.Remove(w.Path)
	w.Leave()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove witness: %w", err)
	}
	return nil
}

// Leave leaves the witness to a successor. From then on nobody is seen here,
// so alive says no.
func (w *FIFO) Leave() {
	w.left.Do(func() {
		w.file.Close()
		fdlimit.Clients().Give(w.uid)
	})
	<-w.ended
}

// Hosts returns the host ids of a lockspace under which there are witnesses.
func Hosts(dir string, uuid layout.UUID) (hosts []int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // which says more where it is to be used
	}
	for _, e := range entries {
		rest, isOurs := strings.CutPrefix(e.Name(), uuid.String()+"-")
		number, _, isWitness := strings.Cut(rest, "-")
		host, err := strconv.Atoi(number)
		if isOurs && isWitness && err == nil && host >= 1 && host <= layout.MaxHosts && strings.HasSuffix(rest, ".fifo") && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// Prune removes the FIFOs of a lockspace and host id, whose lock file
// the caller has, that belong to no session. It returns, and leaves where they
// are, those that have a writer: of a command that has outlived its hold.
func Prune(dir string, uuid layout.UUID, host int, belongs func(session string) bool) (strays []string, err error) {
	prefix := fmt.Sprintf("%s-%d-", uuid, host)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for witnesses: %w", err)
	}
	var errs []error
	for _, e := range entries {
		session, isOurs := strings.CutPrefix(e.Name(), prefix)
		session, isFIFO := strings.CutSuffix(session, ".fifo")
		if !isOurs || !isFIFO || handover.CheckSessionID(session) != nil || belongs(session) {
			continue
		}
		path := filepath.Join(dir, e.Name())
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
