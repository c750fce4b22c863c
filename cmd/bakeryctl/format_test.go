package main

import (
	"bytes"
	"context"
	"fmt"
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

// cancelOn cancels a context as soon as a text is written to it.
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
	result, err := format.Format(t.Context(), path, format.Options{Name: "prod", Hosts: 3, Locks: 4, Lease: layout.MaxLease})
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
	stderr := &cancelOn{text: "waiting 1h12m0s for the hosts", cancel: cancel}
	code := run(ctx, []string{"format", path, "--hosts", "3", "--locks", "4", "--force"}, &app{stdout: &stdout, stderr: stderr})
	require.Equal(t, 130, code)
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), "what was on the device is gone, and it is not usable until it is formatted again with force")

	stderr = &cancelOn{text: "\x00"}
	code = run(t.Context(), []string{"status", "--device", path}, &app{stdout: &stdout, stderr: stderr})
	require.Equal(t, exitNoDevice, code)
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), `formatting was interrupted over lockspace "prod"`)
	require.Contains(t, stderr.String(), "\nhint: bakeryctl format --force completes it\n")
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 130 * time.Second: "2m10s",
		time.Hour + 5*time.Minute: "1h05m", 47 * time.Hour: "47h00m", 50 * time.Hour: "2d02h",
	} {
		require.Equal(t, want, age(d))
	}
}

// TestVersionHint: nobody is told to format what a newer bakeryd made.
func TestVersionHint(t *testing.T) {
	err := fmt.Errorf("%w on /dev/sdb: superblock at byte 0: %w", lockspace.ErrNoLockspace, layout.ErrVersion)
	require.Contains(t, deviceHint(err), "another version")
}
