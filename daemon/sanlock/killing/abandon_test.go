package killing

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/logtest"
	"github.com/bakeryd/bakeryd/test/processtest"
)

// patience limits waits for what must happen. Only a test that fails waits for so long.
const patience = 2 * time.Minute

// left writes the state file of a bakeryd whose clients have a resource each, and a client that has none.
func left(t *testing.T, idle process.ID, clients ...registry.Client) (path string) {
	t.Helper()
	r := registry.New()
	hold := registry.Hold{Session: "s", Token: layout.MakeTicket(7, 1)}
	r.Spaces["ls"] = &registry.Space{Lockspace: wire.Lockspace{Name: "ls"}, Hold: hold}
	r.Register(&registry.Client{Process: idle})
	for i := range clients {
		c := &clients[i]
		r.Register(c)
		res := &registry.Resource{Resource: wire.Resource{Lockspace: "ls", Name: string(rune('a' + i)), Disks: []wire.Disk{{Path: "/x"}}}, Users: []int{c.ID}, Hold: hold}
		r.Resources[res.Key()] = res
	}
	path = filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(path, r.Save(), 0o600))
	return path
}

// TestAbandon_WaitsUntilClientsHaveEnded: the killpath of a client runs, too.
func TestAbandon_WaitsUntilClientsHaveEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, ran := filepath.Join(dir, "kill"), filepath.Join(dir, "ran")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho \"$1\" > "+ran+"\n"), 0o700))
	idle := processtest.Start(t, processtest.UntilKilled, nil)
	a := processtest.Start(t, processtest.UntilKilled, nil)
	ended := process.ID{PID: a.PID, Started: a.Started + 1} // the number is another process's now
	path := left(t, idle, registry.Client{Process: a, KillPath: script, KillArgs: "ls"}, registry.Client{Process: ended})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	remains, err := Abandon(ctx, slog.New(slog.DiscardHandler), path)
	require.NoError(t, err)
	require.Nil(t, remains)
	require.NoFileExists(t, path)
	require.False(t, a.Alive())
	require.True(t, idle.Alive(), "it has nothing")
	require.Eventually(t, func() bool { text, _ := os.ReadFile(ran); return string(text) == "ls\n" }, patience, time.Millisecond)
}

// TestAbandon_RestrictSigkill_Terminates: Abandon waits for no client that may ignore SIGTERM.
func TestAbandon_RestrictSigkill_Terminates(t *testing.T) {
	t.Parallel()
	a := processtest.Start(t, processtest.UntilKilled, nil)
	path := left(t, process.ID{}, registry.Client{Process: a, Restrict: wire.RestrictSigkill})
	remains, err := Abandon(t.Context(), slog.New(slog.DiscardHandler), path)
	require.NoError(t, err)
	require.NotNil(t, remains)
	require.FileExists(t, path)
	require.Eventually(t, func() bool { return !a.Alive() }, patience, time.Millisecond)
	require.False(t, remains(), "it has obeyed")
}

// TestAbandon_ProcessOfAnotherUserByNow_IsKilled: a client may have executed a setuid program. It is known by its start.
func TestAbandon_ProcessOfAnotherUserByNow_IsKilled(t *testing.T) {
	t.Parallel()
	a := processtest.Start(t, processtest.UntilKilled, nil)
	path := left(t, process.ID{}, registry.Client{Process: a, UID: os.Getuid() + 1})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	remains, err := Abandon(ctx, slog.New(slog.DiscardHandler), path)
	require.NoError(t, err)
	require.Nil(t, remains)
	require.False(t, a.Alive())
}

func TestAbandon_WithoutAUsableState_ReturnsAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	log := &logtest.Log{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	remains, err := Abandon(t.Context(), logger, path)
	require.NoError(t, err)
	require.Nil(t, remains)
	require.Empty(t, log.String())
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = Abandon(t.Context(), logger, path)
	require.NoError(t, err)
	require.Contains(t, log.String(), "the state of the sanlock socket is not usable")
}
