// Package processtest starts processes for tests.
package processtest

import (
	"bufio"
	"math"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// OpenFIFO opens a FIFO for writing, as bakeryctl does for its command.
func OpenFIFO(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// HoldFIFO opens a FIFO for writing as a command does that is this process, which bakeryd never
// kills, and returns a function that closes it. Only one thread has it open: a process that is
// started here meanwhile would else have it until it executes its program, and could be killed.
func HoldFIFO(t *testing.T, path string) (end func()) {
	t.Helper()
	opened, over, closed := make(chan error), make(chan struct{}), make(chan struct{})
	OnOwnThread(func() {
		defer close(closed)
		err := unix.Unshare(unix.CLONE_FILES)
		if err == nil {
			err = unix.CloseRange(3, math.MaxInt32, 0)
		}
		fd := -1
		if err == nil {
			fd, err = unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		}
		opened <- err
		<-over
		_ = unix.Close(fd)
	})
	end = sync.OnceFunc(func() { close(over); <-closed })
	t.Cleanup(end)
	require.NoError(t, <-opened)
	return end
}

// Start starts a process that runs a script with a file as its descriptor 3,
// and returns it when the script has written a line.
func Start(t *testing.T, script string, file *os.File, args ...string) process.ID {
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

// UntilKilled is a script that runs until it is killed.
const UntilKilled = `echo ready; exec sleep 1000 >/dev/null`

// OnOwnThread runs f on a thread that ends with it. The first thread of the process never ends: if f would run there, it
// is kept busy until f has run elsewhere.
func OnOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		done := make(chan struct{})
		OnOwnThread(func() { defer close(done); f() })
		<-done
		runtime.UnlockOSThread()
	}()
}

// KillChildren kills the current children of a process at the end of the test.
func KillChildren(t *testing.T, of process.ID) {
	t.Helper()
	table, err := process.Table()
	require.NoError(t, err)
	children := process.Descendants(table, []int{of.PID}, process.Stat.Ended)
	require.NotEmpty(t, children)
	t.Cleanup(func() {
		for _, p := range children {
			_ = p.Signal(syscall.SIGKILL)
		}
	})
}
