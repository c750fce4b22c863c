package liveness

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/test/processtest"
)

func holders(t *testing.T, path string) []process.ID {
	t.Helper()
	found, err := Writers(path)
	require.NoError(t, err)
	return found
}

func TestHoldersAreWhoHasTheWitnessOpen(t *testing.T) {
	w, other := aWitness(t), aWitness(t) // of the same name in another directory
	f := processtest.OpenFIFO(t, w.Path)
	require.Empty(t, holders(t, w.Path), "this process does not count")
	a, b := processtest.Start(t, processtest.UntilKilled, f), processtest.Start(t, processtest.UntilKilled, f)
	processtest.Start(t, processtest.UntilKilled, processtest.OpenFIFO(t, other.Path))
	processtest.Start(t, processtest.UntilKilled, nil)
	// A process that has it open for reading only, or has only its name, is no writer.
	processtest.Start(t, `exec 3>&- 4<>"$1" 3<"$1" 4<&-; `+processtest.UntilKilled, nil, w.Path)
	decoy := filepath.Join(t.TempDir(), filepath.Base(w.Path))
	processtest.Start(t, `exec 3>"$1"; `+processtest.UntilKilled, nil, decoy)
	require.ElementsMatch(t, []process.ID{a, b}, holders(t, w.Path))

	require.NoError(t, a.Signal(unix.SIGSTOP))
	require.ElementsMatch(t, []process.ID{a, b}, holders(t, w.Path), "stopped ones as well")
	f.Close()
	w.Watch()
	require.NoError(t, process.SignalAll(holders(t, w.Path), unix.SIGKILL))
	requireGone(t, w)
	require.Empty(t, holders(t, w.Path))
	require.NoError(t, process.SignalAll([]process.ID{a, b}, unix.SIGKILL), "a process that has ended is no error")
}

func TestHolderKeepsItsMatchWhenTheNameIsGone(t *testing.T) {
	w := aWitness(t)
	a := processtest.Start(t, processtest.UntilKilled, processtest.OpenFIFO(t, w.Path))
	alias := w.Path + ".alias"
	require.NoError(t, os.Link(w.Path, alias))
	require.NoError(t, os.Remove(w.Path))
	require.NoError(t, os.Link(alias, w.Path)) // /proc shows the first name as deleted, and it is the same file
	require.Equal(t, []process.ID{a}, holders(t, w.Path))
	require.NoError(t, os.Remove(w.Path))
	require.NoError(t, unix.Mkfifo(w.Path, 0o600))
	require.Empty(t, holders(t, w.Path), "another file under the same name")
	_, err := Writers(alias + "2")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestHoldersAreFoundByTheirThreads(t *testing.T) {
	w := aWitness(t)
	s := holderScan{name: filepath.Base(w.Path)}
	require.NoError(t, unix.Lstat(w.Path, &s.file))
	require.False(t, s.hasInThread(os.Getpid()))
	// A thread with descriptors of its own, as the threads that are left when the first one has ended.
	ready, done, ended := make(chan error), make(chan struct{}), make(chan struct{})
	processtest.OnOwnThread(func() {
		defer close(ended)
		err := unix.Unshare(unix.CLONE_FILES)
		fd := -1
		if err == nil {
			fd, err = unix.Open(w.Path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		}
		ready <- err
		<-done
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	})
	require.NoError(t, <-ready)
	require.True(t, s.hasInThread(os.Getpid()))
	close(done)
	<-ended
}

func TestHolderThatForksIsStoppedInTheEnd(t *testing.T) {
	w := aWitness(t)
	f := processtest.OpenFIFO(t, w.Path)
	processtest.Start(t, `trap "" TERM; (trap "" TERM; while :; do (sleep 0.01); done) & echo ready; while :; do sleep 0.01; done`, f)
	f.Close()
	w.Watch()
	require.True(t, w.Alive())
	require.NoError(t, process.SignalAll(holders(t, w.Path), unix.SIGTERM))
	require.True(t, w.Alive(), "they take no notice")
	deadline := time.Now().Add(30 * time.Second)
	for w.Alive() {
		require.True(t, time.Now().Before(deadline))
		require.NoError(t, process.SignalAll(holders(t, w.Path), unix.SIGKILL))
	}
	requireGone(t, w)
}

func TestStopHoldersSparesWhoHasTheNumberNow(t *testing.T) {
	id := processtest.Start(t, processtest.UntilKilled, nil)
	earlier := process.ID{PID: id.PID, Started: id.Started - 1}
	require.NoError(t, process.SignalAll([]process.ID{earlier}, unix.SIGKILL))
	require.True(t, id.Alive())
	require.False(t, earlier.Alive())
	require.False(t, slices.Contains(holders(t, aWitness(t).Path), id))
}

func BenchmarkHoldersOf(b *testing.B) {
	w, err := Make(b.TempDir(), "w.fifo", os.Geteuid())
	require.NoError(b, err)
	defer func() { require.NoError(b, w.Remove()) }()
	for b.Loop() {
		if _, err := Writers(w.Path); err != nil {
			b.Fatal(err)
		}
	}
}
