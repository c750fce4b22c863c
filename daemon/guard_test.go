package daemon

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStopCommandInterrupted: a successor finds who is left by the witness.
func TestStopCommandInterrupted(t *testing.T) {
	d := newCluster(t, 8, 4).host(1)
	w, err := newWitness(t.TempDir(), "x", os.Geteuid())
	require.NoError(t, err)
	command, err := os.OpenFile(w.path, os.O_WRONLY, 0) // the test itself, which is never killed
	require.NoError(t, err)
	s := newSessions(d).make("")
	s.fifo = w
	ctx, cancel := context.WithTimeout(t.Context(), 2*killPause)
	defer cancel()
	require.ErrorIs(t, s.stopCommand(ctx), context.DeadlineExceeded)

	s.fifo, err = openWitness(w.path, anybody)
	require.NoError(t, err)
	require.True(t, s.witnessed())
	time.AfterFunc(2*killPause, func() { command.Close() })
	require.NoError(t, s.stopCommand(t.Context()))
	require.NoFileExists(t, w.path)
}
