package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/test/processtest"
)

// of returns a command that has no processes yet.
func of(t *testing.T) *Command {
	return &Command{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Report: func(events.Kind, string) {}}
}

// TestStopCommandInterrupted: the next process finds the rest of the command by the FIFO.
func TestStopCommandInterrupted(t *testing.T) {
	w, err := liveness.Make(t.TempDir(), "x", os.Geteuid())
	require.NoError(t, err)
	// the test itself, which is never killed
	command, err := os.OpenFile(w.Path, os.O_WRONLY, 0)
	require.NoError(t, err)
	s := of(t)
	s.FIFO = w
	ctx, cancel := context.WithTimeout(t.Context(), 2*KillPause)
	defer cancel()
	require.ErrorIs(t, s.Stop(ctx), context.DeadlineExceeded)

	s.FIFO, err = liveness.Open(w.Path, fdlimit.UnknownUser)
	require.NoError(t, err)
	require.True(t, s.Witnessed())
	time.AfterFunc(2*KillPause, func() { command.Close() })
	require.NoError(t, s.Stop(t.Context()))
	require.NoFileExists(t, w.Path)
}

// TestCommand_NumberOfAnEndedProcessReused_SparesTheStranger: and the processes that the stranger
// has started.
func TestCommand_NumberOfAnEndedProcessReused_SparesTheStranger(t *testing.T) {
	s := of(t)
	stranger := processtest.Start(t, `sleep 1000 & echo $!; wait`, nil)
	processtest.KillChildren(t, stranger)
	s.Chase([]process.ID{{PID: stranger.PID, Started: stranger.Started - 1}})
	left, err := s.Left(true)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestCommand_ChildMovedOutOfTheCgroup_IsFoundAfterTheKill: a setuid program may move itself, as su
// does with logind.
func TestCommand_ChildMovedOutOfTheCgroup_IsFoundAfterTheKill(t *testing.T) {
	group, err := cgroup.Make(cgroup.Of(os.Getpid(), ""))
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("SKIP: no cgroup of version 2 can be made here: ", err)
	}
	require.NoError(t, err)
	t.Cleanup(group.Remove)
	cmd := exec.Command("sh", "-c", "sleep 1000 >/dev/null & echo $!; wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var child int
	_, err = fmt.Fscan(out, &child)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	require.NoError(t, group.Add(cmd.Process.Pid))

	s := of(t)
	s.Group = group
	table, err := process.Table()
	require.NoError(t, err)
	killed, err := s.KillGroup(table)
	require.NoError(t, err)
	require.Equal(t, 1, killed)
	require.Error(t, cmd.Wait())
	left, err := s.Left(true)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, child, left[0].PID)
}

// TestCommand_StoppedTwiceTogether_NotesItOnce: by the guard, and because its client is gone. The
// race detector finds unguarded fields.
func TestCommand_StoppedTwiceTogether_NotesItOnce(t *testing.T) {
	s := of(t)
	s.Group = &cgroup.Group{Dir: t.TempDir()}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { s.NoteKill("", syscall.SIGKILL, 1) })
	}
	both.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Group = nil // as contain does if the process has ended
	})
	s.Tidy()
	both.Wait()
}

// TestCommand_CgroupThatCannotBeKilled_IsWeak: as where cgroups are mounted read-only.
func TestCommand_CgroupThatCannotBeKilled_IsWeak(t *testing.T) {
	s := of(t)
	s.Group = &cgroup.Group{Dir: t.TempDir()} // has none of the files
	require.Contains(t, s.Containment(), "weak: bakeryd may not kill")
}

// TestCommand_CgroupThatCannotBeMade_IsUncontainable: the wrapper of lock -n creates it after the
// grant.
func TestCommand_CgroupThatCannotBeMade_IsUncontainable(t *testing.T) {
	s := of(t)
	dir := t.TempDir()
	s.Group = &cgroup.Group{Dir: path.Join(dir, "bakeryctl")}
	require.Empty(t, s.Uncontainable())
	s.Group.Dir = path.Join(dir, "none", "bakeryctl")
	require.Contains(t, s.Uncontainable(), "no cgroup may be made")
}
