package daemon

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/process/processtest"
)

// A bakeryd that was stopped sends the first SIGKILL long after the end of the lease.
func TestKilling_FirstSignalLongAfterTheLease_IsNotOverdue(t *testing.T) {
	const deadline, now = time.Hour, 2 * time.Hour
	var k killing
	require.False(t, k.overdue(deadline, now))
	require.False(t, k.overdue(deadline, now+command.RemainWithin))
	require.True(t, k.overdue(deadline, now+command.RemainWithin+1))
	require.False(t, k.overdue(2*deadline, now+command.RemainWithin+2), "of another lease")
}

// TestSession_StatusOfAnOrphan_DoesNotKeepItsLock: a process that does not hold the lock does not
// get to hold it by being shown.
func TestSession_StatusOfAnOrphan_DoesNotKeepItsLock(t *testing.T) {
	s := realCluster(t, 8, 4).host(1).sessions.make("")
	w, err := liveness.Make(t.TempDir(), "w.fifo", os.Geteuid())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Remove()) })
	s.FIFO, s.orphan = w, true
	f := processtest.OpenFIFO(t, s.FIFO.Path)
	command := processtest.Start(t, `sleep 1000 3>&- & echo $!; wait`, f)
	processtest.KillChildren(t, command)
	require.NoError(t, f.Close())
	// A process that a parallel test forks has all descriptors until it executes its program.
	eventually(t, "only the command, and what it has started without the witness", func() bool {
		pids, _ := s.LeftOver()
		return len(pids) == 2
	})
	require.NoError(t, command.Signal(syscall.SIGKILL))
	s.FIFO.Watch()
	within(t, "the FIFO is gone", func() { <-w.Gone() })
	require.False(t, w.Alive())
	require.False(t, s.running())
}

// contained starts a process in a new cgroup, which may be that of a session of this process.
func contained(t *testing.T, session string) (process.ID, *cgroup.Group) {
	t.Helper()
	self, err := cgroup.WrapperOf(os.Getpid(), session)
	require.NoError(t, err)
	parents, err := cgroup.Parents(os.Getpid())
	require.NoError(t, err)
	g, err := cgroup.Make(parents, self)
	require.NoError(t, err)
	t.Cleanup(g.Remove)
	command := processtest.Start(t, processtest.UntilKilled, nil)
	require.NoError(t, g.Add(command.PID))
	return command, g
}

// TestSession_AloneAndLost_StaysUntilItsCommandHasEnded: the link of a stopped wrapper may end
// before the command is killed.
func TestSession_AloneAndLost_StaysUntilItsCommandHasEnded(t *testing.T) {
	d, disk := realCluster(t, 8, 4).faultyHost(1)
	h, err := d.Acquire(t.Context(), locks.Request{Name: "x"})
	require.NoError(t, err)
	command, group := contained(t, "0123")
	s := newSessions(d.sessions.cfg).make("") // the daemon does not know it, and kills nothing of it
	s.Alone, s.Group, s.hold, s.cancel = true, group, h, func(error) {}
	close(s.done)
	require.False(t, s.running(), "with --close the command does not hold the lock")
	disk.Crash()
	<-h.Lost()
	require.True(t, s.attach(new(inProcess), false).leave())
	require.NoError(t, command.Signal(syscall.SIGKILL))
	eventually(t, "the hold to end", func() bool { return !s.holding() })
}

// TestDaemon_AbandonWithACommandThatDoesNotEnd_KillsTheOthers: other hosts may have their locks.
func TestDaemon_AbandonWithACommandThatDoesNotEnd_KillsTheOthers(t *testing.T) {
	d := realCluster(t, 8, 4).host(1)
	id := func(n int) string { return fmt.Sprintf("%032x", n) }
	p := &previousProcess{runtimeDir: d.ids.RuntimeDir, term: handover.Term{UUID: d.disk.SB.UUID, HostID: 1}}
	stuck, err := liveness.Make(d.ids.RuntimeDir, liveness.Name(d.disk.SB.UUID, 1, id(1)), os.Geteuid())
	require.NoError(t, err)
	processtest.OpenFIFO(t, stuck.Path) // the test itself, which is never killed
	stuck.Leave()
	p.sessions = append(p.sessions, handover.Session{ID: id(1), State: handover.Granted, Witness: true})

	w, err := liveness.Make(d.ids.RuntimeDir, liveness.Name(d.disk.SB.UUID, 1, id(2)), os.Geteuid())
	require.NoError(t, err)
	f := processtest.OpenFIFO(t, w.Path)
	commands := []process.ID{processtest.Start(t, processtest.UntilKilled, f), processtest.Start(t, processtest.UntilKilled, nil)}
	require.NoError(t, f.Close())
	w.Leave()
	p.sessions = append(p.sessions, handover.Session{ID: id(2), State: handover.Granted, Witness: true})

	parents, err := cgroup.Parents(os.Getpid())
	require.NoError(t, err)
	wrapper, err := cgroup.WrapperOf(commands[1].PID, "")
	require.NoError(t, err)
	g, err := cgroup.Make(parents, wrapper)
	require.NoError(t, err)
	t.Cleanup(g.Remove)
	require.NoError(t, g.Add(commands[1].PID))
	p.sessions = append(p.sessions, handover.Session{ID: id(3), State: handover.Granted, Cgroup: g.Dir})

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- newJoiner(d.cfg).abandon(ctx, p) }()
	eventually(t, "the other commands to end", func() bool { return !(commands[0].Alive() || commands[1].Alive()) })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
