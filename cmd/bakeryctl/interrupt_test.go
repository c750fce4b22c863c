package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
)

func TestProbe_Interrupted_RemovesTheProgressLine(t *testing.T) {
	needDirectIO(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "empty.img")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	x := onTerminal(t, "probe", path, "--write", "--for", "10m")
	x.await("\r\x1b[Kbakeryctl: writing and reading ")
	x.press(ctrlC)
	require.Equal(t, 130, x.wait())
	eventually(t, "the line to be gone", func() bool { return strings.HasSuffix(x.shown(), "\r\x1b[K") })
	zero, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 1<<20), zero, "the contents are unchanged")
}

// The signal arrives while check watches whether a host renews.
func TestCheck_Interrupted_Exits(t *testing.T) {
	needDirectIO(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.img")
	_, err := format.Format(t.Context(), []string{path}, format.Options{Hosts: 4, Locks: 4, Lease: time.Hour})
	require.NoError(t, err)
	dev, sb, _, err := lockspace.OpenDisks([]string{path}, lockspace.DiskOptions{})
	require.NoError(t, err)
	put := func(at int64, encode func(p []byte) error) {
		p := blockdev.Alloc(sb.Geometry.Stride)
		require.NoError(t, encode(p))
		require.NoError(t, dev.Write(p, at))
	}
	// Two hosts hold an exclusive lock; this is an error if both are running.
	put(sb.Geometry.Entry(1), func(p []byte) error {
		return sb.Space().EncodeEntry(p, layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 1})
	})
	for id := 1; id <= 2; id++ {
		put(sb.Geometry.Host(id), func(p []byte) error {
			return sb.Space().EncodeHost(p, layout.HostRecord{ID: id, State: layout.StateLive, Incarnation: 7, Sequence: 1, ReadHorizon: 2})
		})
		put(sb.Geometry.Slot(1, id), func(p []byte) error {
			return sb.Space().EncodeSlot(p, layout.Slot{Lock: 1, Host: id, Incarnation: 7, Creation: 1, Phase: layout.Held, Ticket: layout.MakeTicket(1000, id)})
		})
	}
	require.NoError(t, dev.Close())
	x := onTerminal(t, "check", path)
	x.await("bakeryctl: watching hosts ")
	x.press(ctrlC)
	require.Equal(t, 130, x.wait())
	eventually(t, "the line to be gone", func() bool { return strings.HasSuffix(x.shown(), "\r\x1b[K") })
}

// The signal arrives while the command waits for a host that does not follow. It has left before the next run.
func TestDiskReplace_Interrupted_NextRunContinues(t *testing.T) {
	needDirectIO(t)
	t.Parallel()
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"a", "b", "c", "d"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	require.NoError(t, os.WriteFile(paths[3], make([]byte, 1<<20), 0o600))
	const lease = 5 * time.Second // a host that loses it is not declared dead
	_, err := format.Format(t.Context(), paths[:3], format.Options{Hosts: 4, Locks: 4, Lease: lease, Policy: layout.PolicyManual})
	require.NoError(t, err)
	put := func(r layout.HostRecord) {
		dev, sb, _, err := lockspace.OpenDisks(paths[:3], lockspace.DiskOptions{})
		require.NoError(t, err)
		p := blockdev.Alloc(sb.Geometry.Stride)
		require.NoError(t, sb.Space().EncodeHost(p, r))
		require.NoError(t, dev.Write(p, sb.Geometry.Host(r.ID)))
		require.NoError(t, dev.Close())
	}
	db2 := layout.HostRecord{ID: 2, Name: "db2", State: layout.StateLive, Incarnation: 7, Generation: 1, Sequence: 1, ReadHorizon: 4, Epoch: 1}
	put(db2)
	args := []string{"disk", "replace", "3", paths[3], "--device", paths[0], "--device", paths[1]}

	x := onTerminal(t, args...)
	x.await("bakeryctl: waiting for hosts to use the new list of disks: host 2 (db2)")
	x.press(ctrlC)
	x.await("works without disk 3: interrupt signal received\r\nhint: run the same command again, on this host or another one: it continues\r\n")
	require.Equal(t, 130, x.wait())
	db2.State, db2.Sequence = layout.StateLeft, 2
	put(db2)
	x = onTerminal(t, args...)
	x.await("replaced disk 3 of lockspace ") // at the beginning of a line, or over the progress
	x.await("\r\n  new ")
	require.Equal(t, 0, x.wait())
}
