package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
)

// TestFailedClaimTellsOfNoLease: a host that is joining has none that could run out.
func TestFailedClaimTellsOfNoLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		f := blockdev.NewFaulty(c.disk.Open(), blockdev.FaultyOptions{})
		f.Inject(blockdev.Fault{Op: blockdev.OpWrite, Times: 1, Err: errors.New("no path is left")})
		var log bytes.Buffer
		d := c.host(1, through(f), func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		require.NoError(t, d.Close(t.Context()))
		require.Contains(t, log.String(), "no path is left")
		require.NotContains(t, log.String(), "lease_left")
	})
}
