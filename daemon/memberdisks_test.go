package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
)

// TestMemberDisks_DiskIsMissing_AndReturns: both are logged, and are events.
func TestMemberDisks_DiskIsMissing_AndReturns(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"a", "b", "c"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	_, err := format.Format(t.Context(), paths, format.Options{Hosts: 2, Locks: 4, Lease: lockspace.DefaultLease, Policy: layout.PolicyLease})
	require.NoError(t, err)
	away := filepath.Join(dir, "away")
	require.NoError(t, os.Rename(paths[2], away))

	var log bytes.Buffer // written before the journal is
	n := newNotebook(t)
	d := memberDisks{log: slog.New(slog.NewTextHandler(&log, nil)), events: n.log}
	dev, err := d.open(paths, lockspace.DiskOptions{})
	require.NoError(t, err)
	defer dev.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []events.Event
	require.ErrorIs(t, n.log.Follow(ctx, events.Query{}, func(all []events.Event) error {
		if got = append(got, all...); len(got) > 1 {
			cancel()
			return nil
		}
		return os.Rename(away, paths[2])
	}), context.Canceled)

	require.Equal(t, events.DiskLost, got[0].Kind)
	require.Equal(t, "disk 3 ("+paths[2]+"), 2 of 3 up: open "+paths[2]+": no such file or directory", got[0].Reason)
	require.Equal(t, events.DiskBack, got[1].Kind)
	require.Equal(t, "disk 3 ("+paths[2]+"), 3 of 3 up", got[1].Reason)
	require.Len(t, got, 2)
	require.Regexp(t, `level=WARN msg="member disk is lost" disk=3 device=\S*/c up=2 of=3 err="open `, log.String())
	require.Regexp(t, `level=INFO msg="member disk is back" disk=3 device=\S*/c up=3 of=3`, log.String())
	require.Equal(t, mirror.Up, dev.(*lockspace.Disks).Members()[2].State)
}
