package daemon

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/test/processtest"
)

// contained starts a process in a new cgroup, which may be that of a session of this process.
func contained(t *testing.T, session string) (process.ID, *cgroup.Group) {
	t.Helper()
	g, err := cgroup.Make(cgroup.Of(os.Getpid(), session))
	require.NoError(t, err)
	t.Cleanup(g.Remove)
	command := processtest.Start(t, processtest.UntilKilled, nil)
	require.NoError(t, g.Add(command.PID))
	return command, g
}

// TestSession_AloneAndLost_StaysWhileItsCommandRuns: the connection of a stopped wrapper may end
// before the command is killed.
func TestSession_AloneAndLost_StaysWhileItsCommandRuns(t *testing.T) {
	d, disk := realCluster(t, 8, 4).faultyHost(1)
	_, group := contained(t, "0123")
	ending := session.NewEnding()
	ending.End() // no guard kills the command
	table := session.New(session.Config{Locks: d.Manager, Member: d.mem, Times: d.times(), Clock: d.clock, Log: d.log, Observer: d.cfg.observer(), Ending: ending})
	a, err := table.Open(api.LockRequest{Name: "x"}, root(), new(inProcess))
	require.NoError(t, err)
	a.Start()
	<-a.Session().Done()
	a.Session().Regroup(handover.Session{Cgroup: group.Dir})
	require.True(t, a.Session().Alone)
	disk.Crash()
	<-d.Lost()
	require.True(t, a.Leave(), "its command runs")
	require.True(t, a.Session().Holding())
}

// TestDaemon_AbandonWithACommandThatDoesNotEnd_KillsTheOthers: other hosts may have their locks.
func TestDaemon_AbandonWithACommandThatDoesNotEnd_KillsTheOthers(t *testing.T) {
	d := realCluster(t, 8, 4).host(1)
	id := func(n int) string { return fmt.Sprintf("%032x", n) }
	p := &previousProcess{abandoning: make(chan struct{}, 1), runtimeDir: d.ids.RuntimeDir, term: handover.Term{UUID: d.disk.SB.UUID, HostID: 1}}
	stuck, err := liveness.Make(d.ids.RuntimeDir, liveness.Name(d.disk.SB.UUID, 1, id(1)), os.Geteuid())
	require.NoError(t, err)
	p.sessions = append(p.sessions, handover.Session{ID: id(1), State: handover.Granted, Witness: true})

	w, err := liveness.Make(d.ids.RuntimeDir, liveness.Name(d.disk.SB.UUID, 1, id(2)), os.Geteuid())
	require.NoError(t, err)
	f := processtest.OpenFIFO(t, w.Path)
	commands := []process.ID{processtest.Start(t, processtest.UntilKilled, f), processtest.Start(t, processtest.UntilKilled, nil)}
	require.NoError(t, f.Close())
	w.Leave()
	p.sessions = append(p.sessions, handover.Session{ID: id(2), State: handover.Granted, Witness: true})

	g, err := cgroup.Make(cgroup.Of(commands[1].PID, ""))
	require.NoError(t, err)
	t.Cleanup(g.Remove)
	require.NoError(t, g.Add(commands[1].PID))
	p.sessions = append(p.sessions, handover.Session{ID: id(3), State: handover.Granted, Cgroup: g.Dir})

	defer processtest.HoldFIFO(t, stuck.Path)()
	stuck.Leave()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- newJoiner(d.cfg).abandon(ctx, p) }()
	eventually(t, "the other commands to end", func() bool { return !(commands[0].Alive() || commands[1].Alive()) })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
