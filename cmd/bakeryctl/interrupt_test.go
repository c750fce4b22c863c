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
