package daemon

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestOnAnotherDevice: the opened device is joined, and is closed again if it holds no lockspace.
func TestOnAnotherDevice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 2)
		dev := c.Disk.Open()
		d := c.host(1, func(cfg *Config) { cfg.Open = func() (blockdev.Device, error) { return dev, nil } })
		h := acquire(t, d, locks.Request{Name: "x"})
		require.NoError(t, h.Release())
		require.Positive(t, dev.Stats().Write.Count)

		blank := disktest.NewMemory(1<<20, 512, 512).Open()
		join := func(open func() (blockdev.Device, error)) error {
			_, err := Join(t.Context(), c.config(2, func(cfg *Config) { cfg.Open = open }))
			return err
		}
		require.ErrorIs(t, join(func() (blockdev.Device, error) { return blank, nil }), lockspace.ErrNoLockspace)
		require.ErrorIs(t, blank.Close(), blockdev.ErrClosed)

		gone := errors.New("no such disk")
		require.ErrorIs(t, join(func() (blockdev.Device, error) { return nil, gone }), gone)
	})
}
