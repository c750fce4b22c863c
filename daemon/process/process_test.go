package process

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	const rest = " 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 100 200\n"
	for _, name := range []string{"sh", "a b", ") Z 1 (", "a\nb) S 2"} {
		got, err := parse("42 (" + name + ") S" + rest)
		require.NoError(t, err)
		require.Equal(t, Stat{ID: ID{42, 12345}, Parent: 7, State: 'S', Threads: 3}, got, name)
	}
	for _, text := range []string{"", "42", ")(", "42 (sh)", "42 (sh) S 7 1", "x (sh) S" + rest, "42 (sh) SS" + rest} {
		got, err := parse(text)
		require.Error(t, err, text)
		require.Zero(t, got)
	}
}

func TestEnded(t *testing.T) {
	tests := []struct {
		state   byte
		threads int
		want    bool
	}{{'R', 1, false}, {'D', 1, false}, {'T', 1, false}, {'Z', 1, true}, {'X', 0, true}, {'Z', 2, false}}
	for _, test := range tests {
		require.Equal(t, test.want, Stat{State: test.state, Threads: test.threads}.Ended(), "%c with %d threads", test.state, test.threads)
	}
}

func TestThisProcess(t *testing.T) {
	require.NoError(t, CheckProc())
	s, err := Read(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), s.PID)
	require.Equal(t, os.Getppid(), s.Parent)
	require.False(t, s.Ended())
	require.True(t, s.Alive())
	require.NoError(t, s.Signal(0))
	pids, err := List()
	require.NoError(t, err)
	require.Contains(t, pids, os.Getpid())
	threads, err := Threads(os.Getpid())
	require.NoError(t, err)
	require.True(t, slices.Contains(threads, os.Getpid()))
}

func TestAnotherProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	id, err := Of(cmd.Process.Pid)
	require.NoError(t, err)
	require.True(t, id.Alive())

	earlier := ID{id.PID, id.Started - 1}
	require.False(t, earlier.Alive(), "another one had the number")
	err = earlier.Signal(syscall.SIGKILL)
	require.True(t, Gone(err), err)
	require.True(t, id.Alive())

	require.NoError(t, id.Signal(syscall.SIGSTOP, syscall.SIGTERM))
	require.NoError(t, id.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool { return !id.Alive() }, 30*time.Second, time.Millisecond, "only its exit status is left")
	s, err := Read(id.PID)
	require.NoError(t, err)
	require.True(t, s.Ended())

	require.Error(t, cmd.Wait())
	require.False(t, id.Alive())
	_, err = Of(id.PID)
	require.True(t, Gone(err), err)
	require.True(t, Gone(id.Signal(syscall.SIGKILL)))
}

func TestNoProcess(t *testing.T) {
	for _, id := range []ID{{}, {PID: -1}, {PID: 1 << 30, Started: 1}} {
		require.False(t, id.Alive())
		err := id.Signal(syscall.SIGKILL)
		require.True(t, Gone(err), err)
	}
	require.False(t, Gone(nil))
	require.False(t, Gone(errors.New("x")))
	require.False(t, Gone(fs.ErrPermission))
}

func TestID_RunsAs_ItsUserAlone(t *testing.T) {
	self, err := Of(os.Getpid())
	require.NoError(t, err)
	for uid, want := range map[int]bool{os.Getuid(): true, os.Getuid() + 1: false} {
		is, err := self.RunsAs(uid)
		require.NoError(t, err)
		require.Equal(t, want, is)
	}
	_, err = ID{PID: 1 << 30}.RunsAs(0)
	require.True(t, Gone(err))
}
