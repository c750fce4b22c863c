package daemon

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// holder starts a process that runs a script with a file as its descriptor 3,
// and returns it when the script has written a line.
func holder(t *testing.T, script string, file *os.File, args ...string) process.ID {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	if file != nil {
		cmd.ExtraFiles = []*os.File{file}
	}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	go func() { _ = cmd.Wait(); close(ended) }()
	id, err := process.Of(cmd.Process.Pid)
	require.NoError(t, err)
	return id
}

const untilKilled = `echo ready; exec sleep 1000 >/dev/null`

func holders(t *testing.T, path string) []process.ID {
	t.Helper()
	found, err := holdersOf(path)
	require.NoError(t, err)
	return found
}

func TestHoldersAreWhoHasTheWitnessOpen(t *testing.T) {
	w, other := aWitness(t), aWitness(t) // of the same name in another directory
	f := writer(t, w)
	require.Empty(t, holders(t, w.path), "this process does not count")
	a, b := holder(t, untilKilled, f), holder(t, untilKilled, f)
	holder(t, untilKilled, writer(t, other))
	holder(t, untilKilled, nil)
	// Who has it open for reading only, or only its name, is no holder.
	holder(t, `exec 3>&- 4<>"$1" 3<"$1" 4<&-; `+untilKilled, nil, w.path)
	decoy := filepath.Join(t.TempDir(), filepath.Base(w.path))
	holder(t, `exec 3>"$1"; `+untilKilled, nil, decoy)
	require.ElementsMatch(t, []process.ID{a, b}, holders(t, w.path))

	require.NoError(t, a.Signal(unix.SIGSTOP))
	require.ElementsMatch(t, []process.ID{a, b}, holders(t, w.path), "stopped ones as well")
	f.Close()
	w.watch()
	require.NoError(t, stopHolders(holders(t, w.path), unix.SIGKILL))
	requireGone(t, w)
	require.Empty(t, holders(t, w.path))
	require.NoError(t, stopHolders([]process.ID{a, b}, unix.SIGKILL), "who has ended is no error")
}

func TestHolderKeepsItsMatchWhenTheNameIsGone(t *testing.T) {
	w := aWitness(t)
	a := holder(t, untilKilled, writer(t, w))
	alias := w.path + ".alias"
	require.NoError(t, os.Link(w.path, alias))
	require.NoError(t, os.Remove(w.path))
	require.NoError(t, os.Link(alias, w.path)) // /proc shows the first name as deleted, and it is the same file
	require.Equal(t, []process.ID{a}, holders(t, w.path))
	require.NoError(t, os.Remove(w.path))
	require.NoError(t, unix.Mkfifo(w.path, 0o600))
	require.Empty(t, holders(t, w.path), "another file under the same name")
	_, err := holdersOf(alias + "2")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestHoldersAreFoundByTheirThreads(t *testing.T) {
	w := aWitness(t)
	s := holderScan{name: filepath.Base(w.path)}
	require.NoError(t, unix.Lstat(w.path, &s.file))
	require.False(t, s.hasInThread(os.Getpid()))
	// A thread with descriptors of its own, as the threads that are left when the first one has ended.
	ready, done, ended := make(chan error), make(chan struct{}), make(chan struct{})
	onOwnThread(func() {
		defer close(ended)
		err := unix.Unshare(unix.CLONE_FILES)
		fd := -1
		if err == nil {
			fd, err = unix.Open(w.path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
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
	f := writer(t, w)
	holder(t, `trap "" TERM; (trap "" TERM; while :; do (sleep 0.01); done) & echo ready; while :; do sleep 0.01; done`, f)
	f.Close()
	w.watch()
	require.True(t, w.alive())
	require.NoError(t, stopHolders(holders(t, w.path), unix.SIGTERM))
	require.True(t, w.alive(), "they take no notice")
	deadline := time.Now().Add(30 * time.Second)
	for w.alive() {
		require.True(t, time.Now().Before(deadline))
		require.NoError(t, stopHolders(holders(t, w.path), unix.SIGKILL))
	}
	requireGone(t, w)
}

func TestStopHoldersSparesWhoHasTheNumberNow(t *testing.T) {
	id := holder(t, untilKilled, nil)
	earlier := process.ID{PID: id.PID, Started: id.Started - 1}
	require.NoError(t, stopHolders([]process.ID{earlier}, unix.SIGKILL))
	require.True(t, id.Alive())
	require.False(t, earlier.Alive())
	require.False(t, slices.Contains(holders(t, aWitness(t).path), id))
}

func BenchmarkHoldersOf(b *testing.B) {
	w, err := newWitness(b.TempDir(), "w.fifo", os.Geteuid())
	require.NoError(b, err)
	defer func() { require.NoError(b, w.close()) }()
	for b.Loop() {
		if _, err := holdersOf(w.path); err != nil {
			b.Fatal(err)
		}
	}
}
