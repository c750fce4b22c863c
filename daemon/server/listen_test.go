package server

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// listenKilled is the variable with the path of a socket for a process that a test starts. Its first
// thread ends and its others do not, as after SIGKILL if their IO does not return.
const listenKilled = "LISTEN_KILLED"

func init() {
	path := os.Getenv(listenKilled)
	if path == "" {
		return
	}
	if _, err := net.Listen("unix", path); err != nil {
		panic(err)
	}
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0) // an init function runs on the first thread
}

// TestListen_ServerWasKilledAndHasNotEnded_SaysIt: "stop the one that runs" cannot be done.
func TestListen_ServerWasKilledAndHasNotEnded_SaysIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	killed := exec.Command(os.Args[0])
	killed.Env = append(os.Environ(), listenKilled+"="+path)
	require.NoError(t, killed.Start())
	defer func() {
		require.NoError(t, killed.Process.Kill())
		require.Error(t, killed.Wait())
	}()
	require.Eventually(t, func() bool { return process.Killed(killed.Process.Pid) }, time.Minute, 10*time.Millisecond)
	_, err := Listen(path)
	require.ErrorIs(t, err, ErrKilled)
	require.ErrorContains(t, err, fmt.Sprintf("waits for its IO to end: process %d", killed.Process.Pid))

	other := filepath.Join(t.TempDir(), "sock")
	ln, err := Listen(other)
	require.NoError(t, err)
	defer ln.Close()
	_, err = Listen(other)
	require.ErrorIs(t, err, ErrServed)
}
