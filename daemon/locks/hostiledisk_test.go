package locks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// A writer to the device that is no host: a misdirected write, a host's damaged memory, a person
// with dd. Random damage is detected by a record's checksum, address and uuid: locks may stall, and
// are never held twice. A record with a correct checksum at its place is believed, as it must be;
// TestForgedRecords shows its possible effects.

// TestOverwrittenSlot: an own slot that shows what its host did not write ends the lease if other
// hosts may have entered by that.
func TestOverwrittenSlot(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(c *cluster, own layout.Slot) layout.Slot{
		"zeroed": func(c *cluster, own layout.Slot) layout.Slot { return layout.Slot{} },
		"as it was before": func(c *cluster, own layout.Slot) layout.Slot {
			own.Phase, own.Sequence = layout.Idle, own.Sequence-3
			return own
		},
		"of a later ticket": func(c *cluster, own layout.Slot) layout.Slot {
			own.Ticket = layout.MakeTicket(own.Ticket.Number()+1, own.Host)
			return own
		},
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			d := c.host(1)
			h := acquire(t, d, Request{Name: "x"})
			eventually(t, "shown", func() bool { return c.Slot(1, 1).Phase == layout.Held })
			over := forge(c, c.Slot(1, 1))
			c.Write(c.Geo.Slot(1, 1), func(buf []byte) error {
				if over.Blank() {
					return nil
				}
				return c.SB.Space().EncodeSlot(buf, over)
			})
			within(t, "the end of the lease", func() { <-h.Lost() })
			require.ErrorIs(t, d.Err(), driver.ErrOverwritten)
			require.ErrorContains(t, d.Err(), `in lock "x"`)
		})
	}
}

// TestOverwrittenSlotOfOneWhoWaits: a host that read it as idle may be inside.
func TestOverwrittenSlotOfOneWhoWaits(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, Request{Name: "x"})
		eventually(t, "shown", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		waits := start(t, b, Request{Name: "x"})
		eventually(t, "it waits", func() bool { return c.Slot(1, 2).Phase == layout.Waiting })
		c.Write(c.Geo.Slot(1, 2), func([]byte) error { return nil })
		require.NoError(t, h.Release())
		within(t, "the end of the lease", func() { <-b.Lost() })
		require.ErrorIs(t, b.Err(), driver.ErrOverwritten)
		require.Error(t, (<-waits).err)
	})
}

// TestZeroedSlotOfAHolder: a host has seen a slot written. It does not take it for idle when it
// reads as zeroes, as after a read of the wrong place.
func TestZeroedSlotOfAHolder(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, Request{Name: "x"})
		eventually(t, "shown", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		acquireFails(t, b, Request{Name: "x", Try: true}, api.ErrBusy)
		c.Write(c.Geo.Slot(1, 1), func([]byte) error { return nil })
		next := got(t, start(t, b, Request{Name: "x"}))
		require.ErrorIs(t, h.Err(), api.ErrLeaseLost, "the holder must notice first")
		require.NoError(t, next.Release())
	})
}

// TestIdleSlotThatWasForged: its owner rewrites it at its next read.
func TestIdleSlotThatWasForged(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, _ := c.settledHost(1)
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		before := c.Slot(1, 1)
		over := before
		over.Phase, over.Ticket = layout.Held, layout.MakeTicket(before.Ticket.Number()+7, 1)
		c.Write(c.Geo.Slot(1, 1), func(buf []byte) error { return c.SB.Space().EncodeSlot(buf, over) })
		d.attached(1).CheckOwn(true)
		eventually(t, "it is idle again", func() bool { return c.Slot(1, 1).Phase == layout.Idle })
		require.Equal(t, before.Ticket, c.Slot(1, 1).Ticket)
		require.NoError(t, d.Err())
	})
}

// TestHeldWithoutATicket: no host sends a request to a holder with ticket 0.
func TestHeldWithoutATicket(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _ := c.host(1), c.host(2)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		record := blockdev.Alloc(512)
		h := layout.Slot{Lock: 1, Host: 2, Incarnation: c.HostRecord(2).Incarnation, Creation: c.Entry(1).Creation, Phase: layout.Held, Ticket: layout.MakeTicket(1, 2)}
		require.NoError(t, c.SB.Space().EncodeSlot(record, h))
		clear(record[72:80]) // the ticket
		lockspacetest.Forge(record, c.Geo.Slot(1, 2))
		require.NoError(t, c.Disk.Open().Write(record, c.Geo.Slot(1, 2)))
		require.NotPanics(t, func() {
			_, err := a.Request(t.Context(), "x", "please")
			require.ErrorIs(t, err, api.ErrFree)
		})
	})
}

// TestRequestAfterTheLastTime: an own slot with a request at the last possible time takes another
// one.
func TestRequestAfterTheLastTime(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		b := c.host(2)
		h := acquire(t, b, Request{Name: "x"})
		eventually(t, "shown", func() bool { return c.Slot(1, 2).Phase == layout.Held })
		c.Write(c.Geo.Slot(1, 1), func(buf []byte) error {
			return c.SB.Space().EncodeSlot(buf, layout.Slot{Lock: 1, Host: 1, Incarnation: 7, Creation: c.Entry(1).Creation,
				Request: layout.Request{Ticket: layout.MakeTicket(1, 2), At: endOfTime}})
		})
		a := c.host(1)
		asked, err := a.Request(t.Context(), "x", "please")
		require.NoError(t, err)
		require.Len(t, asked, 1)
		require.Equal(t, "please", c.Slot(1, 1).Request.Message)
		require.NoError(t, h.Release())
	})
}

// endOfTime is the last time that a request can have.
var endOfTime = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
