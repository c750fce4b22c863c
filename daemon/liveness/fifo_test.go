package liveness

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

	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/processtest"
)

func aWitness(t *testing.T) *FIFO {
	t.Helper()
	w, err := Make(t.TempDir(), "w.fifo", os.Geteuid())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Remove()) })
	return w
}

func requireGone(t *testing.T, w *FIFO) {
	t.Helper()
	select {
	case <-w.Gone():
	case <-time.After(30 * time.Second):
		require.Fail(t, "the witness is not gone")
	}
	require.False(t, w.Alive())
}

// requireStays looks again after everything that could have been noticed was.
func requireStays(t *testing.T, w *FIFO) {
	t.Helper()
	require.True(t, w.Alive())
	select {
	case <-w.Gone():
		require.Fail(t, "the witness is gone while it has a writer")
	case <-time.After(20 * time.Millisecond):
	}
}

// The kernel behaves as look expects.
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
	info, err := os.Lstat(w.Path)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe|0o600, info.Mode())
	uid, mode := os.Geteuid()+1, os.ModeNamedPipe|0o620
	if os.Geteuid() == 0 {
		mode = os.ModeNamedPipe | 0o600
	}
	w, err = Make(t.TempDir(), "w.fifo", uid)
	require.NoError(t, err)
	defer w.Leave()
	info, err = os.Lstat(w.Path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode())
}

func TestWitnessSeesItsLastWriterGo(t *testing.T) {
	w := aWitness(t)
	require.False(t, w.Alive(), "no writer has come")
	first, second := processtest.OpenFIFO(t, w.Path), processtest.OpenFIFO(t, w.Path)
	require.True(t, w.Alive())
	w.Watch()
	w.Watch()
	requireStays(t, w)
	first.Close()
	requireStays(t, w)
	second.Close()
	requireGone(t, w)
}

// Before watch it does not matter that writers come and go.
func TestWitnessIsWatchedOnlyWhenTold(t *testing.T) {
	w := aWitness(t)
	processtest.OpenFIFO(t, w.Path).Close()
	require.False(t, w.Alive())
	f := processtest.OpenFIFO(t, w.Path)
	requireStays(t, w)
	w.Watch()
	requireStays(t, w)
	f.Close()
	requireGone(t, w)
}

func TestWitnessWithoutWriterIsGoneAtOnce(t *testing.T) {
	fresh := aWitness(t)
	fresh.Watch()
	requireGone(t, fresh)

	left := aWitness(t)
	processtest.OpenFIFO(t, left.Path).Close()
	left.Watch()
	requireGone(t, left)
	f := processtest.OpenFIFO(t, left.Path)
	require.True(t, left.Alive(), "a later writer is seen, though the FIFO is gone")
	f.Close()
}

func TestWitnessOutlivesBakeryd(t *testing.T) {
	w, err := Make(t.TempDir(), "w.fifo", os.Geteuid())
	require.NoError(t, err)
	f := processtest.OpenFIFO(t, w.Path)
	w.Leave()
	w, err = Open(w.Path, fdlimit.UnknownUser)
	require.NoError(t, err)
	require.True(t, w.Alive())
	w.Watch()
	requireStays(t, w)
	w.Leave()

	f.Close() // while nothing looks
	w, err = Open(w.Path, fdlimit.UnknownUser)
	require.NoError(t, err)
	require.False(t, w.Alive())
	w.Watch()
	requireGone(t, w)
	require.NoError(t, w.Remove())
	require.NoFileExists(t, w.Path)
	require.NoError(t, w.Remove())
	require.False(t, w.Alive())
}

// The processes that a killed command leaves keep the FIFO.
func TestWitnessOfProcesses(t *testing.T) {
	w := aWitness(t)
	f := processtest.OpenFIFO(t, w.Path)
	cmd := exec.Command("sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo $!`)
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.Output()
	require.NoError(t, err)
	f.Close()
	w.Watch()
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
		f := processtest.OpenFIFO(t, w.Path)
		if watched {
			w.Watch()
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
		require.False(t, w.Alive(), "whatever is still to be read")
		w.Watch()
		requireGone(t, w)
	}
}

// A writer without end keeps no processor busy: the FIFO reads so much at
// once and then pauses.
func TestEndlessWriterIsReadSlowly(t *testing.T) {
	w := aWitness(t)
	f := processtest.OpenFIFO(t, w.Path)
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
		w, err := Make(t.TempDir(), "w.fifo", os.Geteuid())
		require.NoError(t, err)
		f := processtest.OpenFIFO(t, w.Path)
		var users sync.WaitGroup
		users.Go(w.Watch)
		users.Go(func() { w.Alive() })
		users.Go(func() { f.Close() })
		require.NoError(t, w.Remove())
		users.Wait()
	}
}

// Writers come and go while it is watched: it is gone at a moment without one,
// and at the latest when the last has gone for good.
func TestWitnessOfManyWriters(t *testing.T) {
	for range 20 {
		w := aWitness(t)
		keep := processtest.OpenFIFO(t, w.Path)
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for range 50 {
					f, err := os.OpenFile(w.Path, os.O_WRONLY|unix.O_NONBLOCK, 0)
					if err != nil {
						t.Error(err)
						return
					}
					f.Close()
					runtime.Gosched()
				}
			})
		}
		w.Watch()
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
		_, err := Open(at(name), fdlimit.UnknownUser)
		require.ErrorContains(t, err, "open liveness FIFO "+at(name)+": ")
		require.ErrorContains(t, err, want)
	}
	_, err := Make(dir, "fifo", os.Geteuid())
	require.ErrorContains(t, err, "create liveness FIFO "+at("fifo")+": file exists")
	require.FileExists(t, at("link"), "what was there before stays")
	_, err = Make(at("none"), "fifo", os.Geteuid())
	require.ErrorIs(t, err, os.ErrNotExist)

	t.Run("of another user", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("only root gives a file away")
		}
		require.NoError(t, os.Lchown(at("fifo"), 1, 1))
		_, err := Open(at("fifo"), fdlimit.UnknownUser)
		require.ErrorContains(t, err, "a file of user 1, want 0")
	})
}

func TestWitnessesOfNoSessionArePruned(t *testing.T) {
	dir, uuid := t.TempDir(), layout.UUID{1}
	session := func(n int) string { return strings.Repeat(fmt.Sprint(n), 32) }
	make := func(name string) string {
		w, err := Make(dir, name, os.Geteuid())
		require.NoError(t, err)
		w.Leave()
		return w.Path
	}
	kept := []string{
		make(Name(uuid, 3, session(1))),
		make(Name(uuid, 4, session(2))),
		make(Name(uuid, 33, session(2))),
		make(Name(layout.UUID{2}, 3, session(2))),
		make(Name(uuid, 3, "x")),
		make("other"),
	}
	idle := make(Name(uuid, 3, session(2)))
	w, err := Make(dir, Name(uuid, 3, session(4)), os.Geteuid())
	require.NoError(t, err)
	f := processtest.OpenFIFO(t, w.Path)
	w.Leave()
	odd := filepath.Join(dir, Name(uuid, 3, session(5)))
	require.NoError(t, os.WriteFile(odd, nil, 0o600))

	belongs := func(s string) bool { return s == session(1) }
	strays, err := Prune(dir, uuid, 3, belongs)
	require.ErrorContains(t, err, odd)
	require.NoError(t, os.Remove(odd))
	require.Equal(t, []string{w.Path}, strays)
	for _, path := range append(kept, w.Path) {
		require.FileExists(t, path)
	}
	require.NoFileExists(t, idle)

	f.Close()
	strays, err = Prune(dir, uuid, 3, belongs)
	require.NoError(t, err)
	require.Empty(t, strays)
	require.NoFileExists(t, w.Path)
	_, err = Prune(filepath.Join(dir, "none"), uuid, 3, belongs)
	require.ErrorContains(t, err, "list liveness FIFOs")
}

// One grant with a witness costs one of these.
func BenchmarkWitness(b *testing.B) {
	dir := b.TempDir()
	b.ReportAllocs()
	for b.Loop() {
		w, err := Make(dir, "w.fifo", os.Geteuid())
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Remove(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestWitnessHosts: whose commands are left is told by names alone.
func TestWitnessHosts(t *testing.T) {
	dir, uuid := t.TempDir(), layout.UUID{1}
	require.Empty(t, Hosts(dir, uuid))
	for _, name := range []string{Name(uuid, 3, strings.Repeat("a", 32)), Name(uuid, 3, strings.Repeat("b", 32)), Name(uuid, 12, "x"),
		Name(layout.UUID{2}, 4, "x"), uuid.String() + "-5.state", uuid.String() + "-x-y.fifo", uuid.String() + "-2001-y.fifo", uuid.String() + "-0-y.fifo"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.ElementsMatch(t, []int{3, 12}, Hosts(dir, uuid))
	require.Empty(t, Hosts("/nowhere", uuid))
}
