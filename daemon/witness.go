package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	pipeSize   = 64 << 10 // what a pipe holds if nobody changed it
	drainEvery = 10 * time.Millisecond
)

// witness is a FIFO by which bakeryd knows whether a command, or what it has
// left running, lives: they inherit a write end of it, which the kernel closes
// with the last of them. It outlives bakeryd, whose successor opens it again.
//
// Nobody is to write into it. What is written nevertheless is read away, so
// that no writer is held up; while no bakeryd runs, one may get SIGPIPE.
type witness struct {
	path string
	uid  int      // whose it is; unknownUser: that is not known
	file *os.File // the read end
	raw  rawControl

	watching atomic.Bool
	none     chan struct{} // closed at a moment without a writer
	ended    chan struct{} // closed when nobody reads any more
	once     sync.Once     // of watch
	left     sync.Once     // of leave
}

// rawControl is what is needed of syscall.RawConn.
type rawControl interface {
	Control(f func(fd uintptr)) error
	Read(f func(fd uintptr) bool) error
}

// witnessName is the name of the FIFO of a session. It has the lockspace and
// the host id in it: several bakeryd may share a runtime directory.
func witnessName(uuid layout.UUID, host int, session string) string {
	return fmt.Sprintf("%s-%d-%s.fifo", uuid, host, session)
}

// bakeryGroup is the gid of the group that may use the socket, -1 if there is
// none. It is looked up once: where groups are kept elsewhere it may take long.
var bakeryGroup = sync.OnceValue(func() int {
	if g, err := user.LookupGroup(socketGroup); err == nil {
		if gid, err := strconv.Atoi(g.Gid); err == nil {
			return gid
		}
	}
	return -1
})

// newWitness makes a FIFO, which a user may open for writing: nobody else is to
// keep the lock by it. A bakeryd that is not root cannot give it to that user
// alone, but to all who may use the socket.
func newWitness(dir, name string, uid int) (*witness, error) {
	path := filepath.Join(dir, name)
	fail := func(err error) (*witness, error) { return nil, fmt.Errorf("make witness %s: %w", path, bare(err)) }
	if err := clientDescriptors().take(uid); err != nil {
		return fail(err)
	}
	defer clientDescriptors().give(uid) // attachWitness has its own
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fail(err)
	}
	w, err := attachWitness(path, uid)
	if err == nil {
		err = giveTo(uid, w.file)
	}
	if err != nil {
		if w != nil {
			w.leave()
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
	if gid := bakeryGroup(); gid >= 0 {
		if err := f.Chown(-1, gid); err != nil && !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("give it to group %s: %w", socketGroup, err)
		}
	}
	return f.Chmod(0o620) // whatever the umask
}

// openWitness opens a predecessor's FIFO again. It refuses whatever else is at
// that path.
func openWitness(path string, uid int) (*witness, error) {
	w, err := attachWitness(path, uid)
	if err != nil {
		return nil, fmt.Errorf("open witness %s: %w", path, bare(err))
	}
	return w, nil
}

func attachWitness(path string, uid int) (*witness, error) {
	// To open something else might do things; what is there is looked at first.
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
	clientDescriptors().must(uid)
	w := &witness{path: path, uid: uid, file: f, raw: raw, none: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w, nil
}

// givenAway tells whether a file can be a FIFO that root has made for a client: only root gives files of its group to
// other users.
func givenAway(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().Type() == os.ModeNamedPipe && os.Geteuid() == 0 && int(st.Gid) == os.Getegid()
}

// bare takes the path off an error that is about to get it.
func bare(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) && err == error(pe) {
		return pe.Err
	}
	return err
}

// writers is what a look at the read end shows.
type writers int

const (
	noWriter writers = iota
	someWriter
	somebodyWrote // or some writer, who has yet to be looked for
)

// look tells whether the FIFO has a writer. In Linux a read of an empty FIFO
// returns 0 if it has none, and else EAGAIN. If there is something to read
// POLLHUP tells; but it is never set before the first writer has come.
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
			return someWriter // EAGAIN; there is no other, and none that would prove the writer gone
		case n == 0:
			return noWriter
		default:
			return somebodyWrote
		}
	}
}

// run reads until the witness is closed, or gone.
func (w *witness) run() {
	defer close(w.ended)
	buf := make([]byte, 512)
	for {
		var seen writers
		err := w.raw.Read(func(fd uintptr) bool {
			seen = look(int(fd), buf)
			// If not done, it is called again when somebody wrote, or the last writer has gone.
			return seen == somebodyWrote || seen == noWriter && w.watching.Load()
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

// watch begins to wait for a moment without a writer: now or later. Before the
// command can have opened the FIFO there is none, so it is called when the
// client's connection has closed, or at a restart. It may be called again.
func (w *witness) watch() {
	w.once.Do(func() {
		w.watching.Store(true)
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // wakes run
	})
}

// gone is closed at the first moment since watch at which it is seen that
// there is no writer. If one comes in the very moment in which the last one
// goes, it may be a later one; it is never one with a writer.
func (w *witness) gone() <-chan struct{} { return w.none }

// alive tells whether there is a writer now.
func (w *witness) alive() bool {
	seen := noWriter
	_ = w.raw.Control(func(fd uintptr) {
		buf := make([]byte, 4096)
		for range 2 * pipeSize / len(buf) { // then somebody is filling it up meanwhile
			if seen = look(int(fd), buf); seen != somebodyWrote {
				return
			}
		}
	})
	return seen != noWriter
}

// close ends the witness and removes it: when it is gone, for holdersOf cannot
// find by it any more who has it open. It may be called again.
func (w *witness) close() error {
	err := os.Remove(w.path)
	w.leave()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove witness: %w", err)
	}
	return nil
}

// leave leaves the witness to a successor. From then on nobody is seen here,
// so alive says no.
func (w *witness) leave() {
	w.left.Do(func() {
		w.file.Close()
		clientDescriptors().give(w.uid)
	})
	<-w.ended
}

// witnessHosts returns the host ids of a lockspace under which there are witnesses.
func witnessHosts(dir string, uuid layout.UUID) (hosts []int) {
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

// pruneWitnesses removes the FIFOs of a lockspace and host id, whose lock file
// the caller has, that belong to no session. It returns, and leaves where they
// are, those that have a writer: of a command that has outlived its hold.
func pruneWitnesses(dir string, uuid layout.UUID, host int, belongs func(session string) bool) (strays []string, err error) {
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
		w, err := openWitness(path, unknownUser)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case w.alive():
			w.leave()
			strays = append(strays, path)
		default:
			errs = append(errs, w.close())
		}
	}
	return strays, errors.Join(errs...)
}
