package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/layout"
)

func aWitness(t *testing.T) *witness {
	t.Helper()
	w, err := newWitness(t.TempDir(), "w.fifo", os.Geteuid())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()) })
	return w
}

// writer opens a witness as bakeryctl does.
func writer(t *testing.T, w *witness) *os.File {
	t.Helper()
	f, err := os.OpenFile(w.path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func requireGone(t *testing.T, w *witness) {
	t.Helper()
	select {
	case <-w.gone():
	case <-time.After(30 * time.Second):
		require.Fail(t, "the witness is not gone")
	}
	require.False(t, w.alive())
}

// requireStays looks again after everything that could have been noticed was.
func requireStays(t *testing.T, w *witness) {
	t.Helper()
	require.True(t, w.alive())
	select {
	case <-w.gone():
		require.Fail(t, "the witness is gone while it has a writer")
	case <-time.After(20 * time.Millisecond):
	}
}

// What the kernel does, on which look depends.
func TestFIFOs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	open := func(flag int) int {
		fd, err := unix.Open(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	state := func(fd int) string {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, err := unix.Poll(p, 0)
		require.NoError(t, err)
		hup := "-"
		if p[0].Revents&unix.POLLHUP != 0 {
			hup = "HUP"
		}
		n, err := unix.Read(fd, make([]byte, 2))
		if err != nil {
			return hup + " " + unix.ErrnoName(err.(unix.Errno))
		}
		return fmt.Sprint(hup, " ", n)
	}
	_, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0)
	require.ErrorIs(t, err, unix.ENXIO, "without a reader")

	r := open(unix.O_RDONLY)
	require.Equal(t, "- 0", state(r), "fresh: no POLLHUP")
	w := open(unix.O_WRONLY)
	require.Equal(t, "- EAGAIN", state(r))
	require.NoError(t, unix.Close(w))
	require.Equal(t, "HUP 0", state(r))
	w = open(unix.O_WRONLY)
	require.Equal(t, "- EAGAIN", state(r), "another writer takes the POLLHUP back")
	_, err = unix.Write(w, []byte("xyz"))
	require.NoError(t, err)
	require.NoError(t, unix.Close(w))
	require.Equal(t, "HUP 2", state(r), "POLLHUP goes before what is still to be read")

	second := open(unix.O_RDONLY)
	require.Equal(t, "- 1", state(second), "a new reader knows nothing of earlier writers")
	require.Equal(t, "- 0", state(second))
	require.NoError(t, unix.Close(second))

	w = open(unix.O_WRONLY)
	require.NoError(t, unix.Close(r))
	r = open(unix.O_RDONLY)
	require.Equal(t, "- EAGAIN", state(r), "a reader that comes after the writer")
	require.NoError(t, unix.Close(w))
	require.Equal(t, "HUP 0", state(r))
	require.NoError(t, unix.Close(r))
}

// TestWitnessIsMadeForItsUser, or, by a bakeryd that cannot give it away, for the group.
func TestWitnessIsMadeForItsUser(t *testing.T) {
	old := unix.Umask(0o007)
	defer unix.Umask(old)
	w := aWitness(t)
	info, err := os.Lstat(w.path)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe|0o600, info.Mode())
	uid, mode := os.Geteuid()+1, os.ModeNamedPipe|0o620
	if os.Geteuid() == 0 {
		mode = os.ModeNamedPipe | 0o600
	}
	w, err = newWitness(t.TempDir(), "w.fifo", uid)
	require.NoError(t, err)
	defer w.leave()
	info, err = os.Lstat(w.path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode())
}

func TestWitnessSeesItsLastWriterGo(t *testing.T) {
	w := aWitness(t)
	require.False(t, w.alive(), "nobody has come")
	first, second := writer(t, w), writer(t, w)
	require.True(t, w.alive())
	w.watch()
	w.watch()
	requireStays(t, w)
	first.Close()
	requireStays(t, w)
	second.Close()
	requireGone(t, w)
}

// Before watch it does not matter that writers come and go.
func TestWitnessIsWatchedOnlyWhenTold(t *testing.T) {
	w := aWitness(t)
	writer(t, w).Close()
	require.False(t, w.alive())
	f := writer(t, w)
	requireStays(t, w)
	w.watch()
	requireStays(t, w)
	f.Close()
	requireGone(t, w)
}

func TestWitnessWithoutWriterIsGoneAtOnce(t *testing.T) {
	fresh := aWitness(t)
	fresh.watch()
	requireGone(t, fresh)

	left := aWitness(t)
	writer(t, left).Close()
	left.watch()
	requireGone(t, left)
	f := writer(t, left)
	require.True(t, left.alive(), "who comes later is seen, though it is gone")
	f.Close()
}

func TestWitnessOutlivesBakeryd(t *testing.T) {
	w, err := newWitness(t.TempDir(), "w.fifo", os.Geteuid())
	require.NoError(t, err)
	f := writer(t, w)
	w.leave()
	w, err = openWitness(w.path, unknownUser)
	require.NoError(t, err)
	require.True(t, w.alive())
	w.watch()
	requireStays(t, w)
	w.leave()

	f.Close() // while nobody looks
	w, err = openWitness(w.path, unknownUser)
	require.NoError(t, err)
	require.False(t, w.alive())
	w.watch()
	requireGone(t, w)
	require.NoError(t, w.close())
	require.NoFileExists(t, w.path)
	require.NoError(t, w.close())
	require.False(t, w.alive())
}

// What a command that is killed leaves running keeps the witness.
func TestWitnessOfProcesses(t *testing.T) {
	w := aWitness(t)
	f := writer(t, w)
	cmd := exec.Command("sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo $!`)
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.Output()
	require.NoError(t, err)
	f.Close()
	w.watch()
	requireStays(t, w)
	var pid int
	_, err = fmt.Sscan(string(out), &pid)
	require.NoError(t, err)
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	requireGone(t, w)
}

func TestWhoWritesIntoAWitnessIsNotHeldUp(t *testing.T) {
	for _, watched := range []bool{false, true} {
		w := aWitness(t)
		f := writer(t, w)
		if watched {
			w.watch()
		}
		block := make([]byte, 10<<10)
		// More than a pipe holds: os.File waits where there is no room.
		for range 20 {
			_, err := f.Write(block)
			require.NoError(t, err)
		}
		requireStays(t, w)
		_, err := f.Write(block)
		require.NoError(t, err)
		f.Close()
		require.False(t, w.alive(), "whatever is still to be read")
		w.watch()
		requireGone(t, w)
	}
}

// Who writes without end keeps no processor busy: the witness reads so much at
// once and then pauses.
func TestEndlessWriterIsReadSlowly(t *testing.T) {
	w := aWitness(t)
	f := writer(t, w)
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	block, begun, written := make([]byte, pipeSize), time.Now(), 0
	for written < 20*pipeSize {
		require.NoError(t, raw.Write(func(fd uintptr) bool {
			n, err := unix.Write(int(fd), block)
			written += max(n, 0)
			return !errors.Is(err, unix.EAGAIN)
		}))
	}
	require.Greater(t, time.Since(begun), 10*drainEvery)
}

func TestWitnessClosedWhileItIsUsed(t *testing.T) {
	for range 50 {
		w, err := newWitness(t.TempDir(), "w.fifo", os.Geteuid())
		require.NoError(t, err)
		f := writer(t, w)
		var users sync.WaitGroup
		users.Go(w.watch)
		users.Go(func() { w.alive() })
		users.Go(func() { f.Close() })
		require.NoError(t, w.close())
		users.Wait()
	}
}

// Writers come and go while it is watched: it is gone at a moment without one,
// and at the latest when the last has gone for good.
func TestWitnessOfManyWriters(t *testing.T) {
	for range 20 {
		w := aWitness(t)
		keep := writer(t, w)
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for range 50 {
					f, err := os.OpenFile(w.path, os.O_WRONLY|unix.O_NONBLOCK, 0)
					if err != nil {
						t.Error(err)
						return
					}
					f.Close()
					runtime.Gosched()
				}
			})
		}
		w.watch()
		users.Wait()
		requireStays(t, w)
		keep.Close()
		requireGone(t, w)
	}
}

func TestOnlyAFIFOOfOurOwnIsAWitness(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(at("fifo"), 0o600))
	require.NoError(t, os.Symlink(at("fifo"), at("link")))
	require.NoError(t, os.Mkdir(at("dir"), 0o700))
	for name, want := range map[string]string{
		"file": "a file of type ----------, want p", "link": "a file of type L", "dir": "a file of type d", "none": "no such file",
	} {
		_, err := openWitness(at(name), unknownUser)
		require.ErrorContains(t, err, "open witness "+at(name)+": ")
		require.ErrorContains(t, err, want)
	}
	_, err := newWitness(dir, "fifo", os.Geteuid())
	require.ErrorContains(t, err, "make witness "+at("fifo")+": file exists")
	require.FileExists(t, at("link"), "what was there before stays")
	_, err = newWitness(at("none"), "fifo", os.Geteuid())
	require.ErrorIs(t, err, os.ErrNotExist)

	t.Run("of another user", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("only root gives a file away")
		}
		require.NoError(t, os.Lchown(at("fifo"), 1, 1))
		_, err := openWitness(at("fifo"), unknownUser)
		require.ErrorContains(t, err, "a file of user 1, want 0")
	})
}

func TestWitnessesOfNoSessionArePruned(t *testing.T) {
	dir, uuid := t.TempDir(), layout.UUID{1}
	session := func(n int) string { return strings.Repeat(fmt.Sprint(n), 32) }
	make := func(name string) string {
		w, err := newWitness(dir, name, os.Geteuid())
		require.NoError(t, err)
		w.leave()
		return w.path
	}
	kept := []string{
		make(witnessName(uuid, 3, session(1))),
		make(witnessName(uuid, 4, session(2))),
		make(witnessName(uuid, 33, session(2))),
		make(witnessName(layout.UUID{2}, 3, session(2))),
		make(witnessName(uuid, 3, "x")),
		make("other"),
	}
	idle := make(witnessName(uuid, 3, session(2)))
	w, err := newWitness(dir, witnessName(uuid, 3, session(4)), os.Geteuid())
	require.NoError(t, err)
	f := writer(t, w)
	w.leave()
	odd := filepath.Join(dir, witnessName(uuid, 3, session(5)))
	require.NoError(t, os.WriteFile(odd, nil, 0o600))

	belongs := func(s string) bool { return s == session(1) }
	strays, err := pruneWitnesses(dir, uuid, 3, belongs)
	require.ErrorContains(t, err, odd)
	require.NoError(t, os.Remove(odd))
	require.Equal(t, []string{w.path}, strays)
	for _, path := range append(kept, w.path) {
		require.FileExists(t, path)
	}
	require.NoFileExists(t, idle)

	f.Close()
	strays, err = pruneWitnesses(dir, uuid, 3, belongs)
	require.NoError(t, err)
	require.Empty(t, strays)
	require.NoFileExists(t, w.path)
	_, err = pruneWitnesses(filepath.Join(dir, "none"), uuid, 3, belongs)
	require.ErrorContains(t, err, "look for witnesses")
}

// One grant with a witness costs one of these.
func BenchmarkWitness(b *testing.B) {
	dir := b.TempDir()
	b.ReportAllocs()
	for b.Loop() {
		w, err := newWitness(dir, "w.fifo", os.Geteuid())
		if err != nil {
			b.Fatal(err)
		}
		if err := w.close(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestWitnessHosts: whose commands are left is told by names alone.
func TestWitnessHosts(t *testing.T) {
	dir, uuid := t.TempDir(), layout.UUID{1}
	require.Empty(t, witnessHosts(dir, uuid))
	for _, name := range []string{witnessName(uuid, 3, strings.Repeat("a", 32)), witnessName(uuid, 3, strings.Repeat("b", 32)), witnessName(uuid, 12, "x"),
		witnessName(layout.UUID{2}, 4, "x"), uuid.String() + "-5.state", uuid.String() + "-x-y.fifo", uuid.String() + "-2001-y.fifo", uuid.String() + "-0-y.fifo"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.ElementsMatch(t, []int{3, 12}, witnessHosts(dir, uuid))
	require.Empty(t, witnessHosts("/nowhere", uuid))
}
