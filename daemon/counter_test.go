package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
)

// progressTold is what a Counter was told of a step.
type progressTold struct {
	last, total int64
	bytes       bool
}

// heldToIt returns a Counter that checks the announced amounts against the reported ones.
func heldToIt(t *testing.T) (lockspace.Counter, map[string]progressTold) {
	steps := map[string]progressTold{}
	return func(step string, done, total int64, bytes bool) {
		was, known := steps[step]
		require.GreaterOrEqual(t, done, was.last, step)
		require.LessOrEqual(t, done, total, step)
		if known {
			require.Equal(t, was.total, total, step)
		}
		steps[step] = progressTold{done, total, bytes}
	}, steps
}

func TestFormatAndCheckAreCounted(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: it waits for a lease")
	}
	path := filepath.Join(t.TempDir(), "locks.img")
	o := format.Options{Hosts: 4, Locks: 8, Lease: time.Second}
	_, err := format.Format(t.Context(), []string{path}, o)
	require.NoError(t, err)

	count, steps := heldToIt(t)
	o.Force, o.Counter = true, count
	o.Progress = func(message string) { require.NotContains(t, message, "%") }
	result, err := format.Format(t.Context(), []string{path}, o)
	require.NoError(t, err)
	require.Equal(t, progressTold{int64(result.Size), int64(result.Size), true}, steps["zeroing"])

	dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
	require.NoError(t, err)
	defer dev.Close()
	count, steps = heldToIt(t)
	_, err = check.Check(t.Context(), dev, check.Options{Counter: count})
	require.NoError(t, err)
	require.Equal(t, progressTold{int64(result.Size), int64(result.Size), true}, steps["reading"])
}

func TestCheckEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.img")
	_, err := format.Format(t.Context(), []string{path}, format.Options{Hosts: 4, Locks: 8, Lease: time.Second})
	require.NoError(t, err)
	dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
	require.NoError(t, err)
	defer dev.Close()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = check.Check(ctx, dev, check.Options{Counter: func(string, int64, int64, bool) { cancel(enough) }})
	require.ErrorIs(t, err, enough)
}
