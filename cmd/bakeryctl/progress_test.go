package main

import (
	"bytes"
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

func TestProgressText(t *testing.T) {
	for want, w := range map[string]work{
		"bakeryctl: zeroing 25%, 512 MiB of 2.0 GiB, 256 MiB/s, 6.9 s left": {name: "zeroing", done: 512 << 20, total: 2 << 30, bytes: true},
		"bakeryctl: reading 100%, 2.0 KiB of 2.0 KiB, 1.0 KiB/s":            {name: "reading", done: 2048, total: 2048, bytes: true},
		"bakeryctl: reading 0%, 0 bytes of 1.0 TiB, 0 bytes/s":              {name: "reading", total: 1 << 40, bytes: true},
		"bakeryctl: watching hosts 40%, 3.9 s left":                         {name: "watching hosts", done: 2000, total: 5000},
		"bakeryctl: measuring handover 20%, 8.9 s left":                     {name: "measuring handover", lasts: 10 * time.Second},
		"bakeryctl: measuring handover 100%":                                {name: "measuring handover", lasts: time.Second},
		"bakeryctl: checking with db2, for 2.0 s":                           {name: "checking with db2"},
	} {
		w.begun = noon
		require.Equal(t, want, w.text(noon.Add(2*time.Second), 100))
		for wide := range 30 {
			require.LessOrEqual(t, len(w.text(noon.Add(2*time.Second), wide)), wide)
		}
	}
	require.NotContains(t, work{name: "opening \x1b[2J"}.text(noon, 79), "\x1b")
}

func TestProgressIsErased(t *testing.T) {
	var out bytes.Buffer
	never := time.NewTicker(time.Hour) // it is drawn by hand
	p := startProgress(&out, never, noon)
	p.draw(noon)
	require.Empty(t, out.String(), "there is no work yet")
	p.counter()("zeroing", 1, 2, true)
	p.draw(noon)
	require.True(t, strings.HasPrefix(out.String(), "\r\x1b[Kbakeryctl: zeroing 50%"), "%q", out.String())
	out.Reset()
	p.sayer(&out)("a message")
	require.Equal(t, "\r\x1b[Ka message\n", out.String())
	out.Reset()
	p.draw(noon)
	out.Reset()
	p.stop()
	p.stop()
	require.Equal(t, "\r\x1b[K", out.String())
}

func TestNoProgressWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	p := (&app{stderr: &out}).progress()
	require.Nil(t, p)
	require.Nil(t, p.counter(), "format tells percentages by itself then, as lines")
	p.begin("x", time.Second)
	p.sayer(&out)("as ever")
	p.stop()
	require.Equal(t, "as ever\n", out.String())
}

func TestProgressOnATerminal(t *testing.T) {
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
	require.Equal(t, make([]byte, 1<<20), zero, "all is as it was")
}

// TestCheckIsInterrupted: while it watches whether a host renews, which takes almost half a lease.
func TestCheckIsInterrupted(t *testing.T) {
	needDirectIO(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.img")
	_, err := format.Format(t.Context(), path, format.Options{Hosts: 4, Locks: 4, Lease: time.Hour})
	require.NoError(t, err)
	dev, sb, _, err := lockspace.OpenLockspace(path, false)
	require.NoError(t, err)
	put := func(at int64, encode func(p []byte) error) {
		p := blockdev.Alloc(sb.Geometry.Stride)
		require.NoError(t, encode(p))
		require.NoError(t, dev.Write(p, at))
	}
	// Two hosts hold what only one may, if they are up.
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
