package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
)

// cancelOn cancels a context when a text is written to it.
type cancelOn struct {
	bytes.Buffer
	text   string
	cancel context.CancelFunc
}

func (c *cancelOn) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

func TestFormatInterrupted(t *testing.T) {
	t.Parallel()
	needDirectIO(t)
	path := filepath.Join(t.TempDir(), "locks")
	result, err := format.Format(t.Context(), []string{path}, format.Options{Name: "prod", Hosts: 3, Locks: 4, Lease: layout.MaxLease})
	require.NoError(t, err)
	dev, err := blockdev.Open(path, blockdev.Options{})
	require.NoError(t, err)
	sector := blockdev.Alloc(result.Superblock.Geometry.Stride)
	require.NoError(t, result.Superblock.Space().EncodeHost(sector, layout.HostRecord{ID: 2, Incarnation: 5, State: layout.StateLive, Name: "db2"}))
	require.NoError(t, dev.Write(sector, result.Superblock.Geometry.Host(2)))
	require.NoError(t, dev.Close())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	stderr := &cancelOn{text: "waiting 1h12m0s for the leases", cancel: cancel}
	code := run(ctx, []string{"format", path, "--hosts", "3", "--locks", "4", "--force"}, &app{stdout: &stdout, stderr: stderr})
	require.Equal(t, 130, code)
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), "the old contents are lost, and the device is not usable until it is formatted again with force")

	stderr = &cancelOn{text: "\x00"}
	code = run(t.Context(), []string{"status", "--device", path}, &app{stdout: &stdout, stderr: stderr})
	require.Equal(t, cli.ExitNoDevice, code)
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), `formatting was interrupted over lockspace "prod"`)
	require.Contains(t, stderr.String(), "\nhint: run bakeryctl format --force to complete it\n")
}
