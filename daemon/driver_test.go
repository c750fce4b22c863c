package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestStatusOfALargerLockspace: the device may be reformatted for more hosts under a running
// daemon.
func TestStatusOfALargerLockspace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 2, 16)
		d := c.host(1)
		c.SB.UUID = layout.UUID{9}
		c.SB.Geometry.Hosts, c.SB.Geometry.Locks = 6, 1
		for _, copy := range []int{1, 0} {
			c.Write(c.SB.Geometry.Superblock(copy), func(buf []byte) error { return c.SB.Encode(buf, copy) })
		}
		c.Write(c.SB.Geometry.Host(6), func(buf []byte) error {
			return c.SB.Space().EncodeHost(buf, layout.HostRecord{ID: 6, Incarnation: 1, State: layout.StateLive, ReadHorizon: 6})
		})
		require.NotPanics(t, func() { _, _ = d.Status() })
	})
}
