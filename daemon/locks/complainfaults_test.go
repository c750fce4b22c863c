package locks

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// spoiler damages a slot of another host just after this one has marked its own for removal.
type spoiler struct {
	blockdev.Device
	off   int64
	space layout.Space
	spoil func()
}

func (d *spoiler) Write(p []byte, off int64) error {
	err := d.Device.Write(p, off)
	if off == d.off && d.spoil != nil {
		if s, err := d.space.DecodeSlot(p, 1, 2); err == nil && s.Phase == layout.Held && s.Creation > 1 {
			d.spoil()
			d.spoil = nil
		}
	}
	return err
}

// TestDrainComplains: a live owner's slot is damaged while another host removes the lock. The
// remover complains of it.
func TestDrainComplains(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.WriteEntry(layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 1})
		a, _ := c.settledHost(1)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		b := c.host(2, through(&spoiler{c.Disk.Open(), c.Geo.Slot(1, 2), c.SB.Space(), func() { c.Spoil(c.Geo.Slot(1, 1)) }}))
		require.NoError(t, acquire(t, b, Request{Name: "x"}).Release())
		require.NoError(t, b.Remove(timeout(t, generous), "x", false))
	})
}

// TestRequestComplains: an idle host's bad slot blocks every request for the lock.
func TestRequestComplains(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _ := c.settledHost(1)
		b, _ := c.settledHost(2)
		d, _ := c.settledHost(3)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		h := acquire(t, b, Request{Name: "x"})
		eventually(t, "shown", func() bool { return c.Slot(1, 2).Phase == layout.Held })
		c.Spoil(c.Geo.Slot(1, 1))
		eventually(t, "healed", func() bool {
			_, err := d.Request(t.Context(), "x", "please")
			require.NoError(t, err)
			_, err = c.SB.Space().DecodeSlot(lockspacetest.Contents(t, c.Disk)[c.Geo.Slot(1, 1):], 1, 1)
			return err == nil
		})
		require.NoError(t, h.Release())
	})
}

// TestMendingStarvesNobody: two entries are damaged. The lock of the first is held by a host that
// is silent (policy manual), so it cannot be restored. That of the second is free and known to A:
// it is restored for B.
func TestMendingStarvesNobody(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.SetPolicy(layout.PolicyManual)
		for lock, name := range map[int]string{1: "x", 2: "y"} {
			c.WriteEntry(layout.Entry{Lock: lock, Name: name, Permits: 1, Creation: 1})
		}
		a, _ := c.settledHost(1)
		b, _ := c.settledHost(2)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		require.NoError(t, acquire(t, a, Request{Name: "y"}).Release())
		rec := layout.HostRecord{ID: 3, Incarnation: 77, State: layout.StateLive, Sequence: 1, ReadHorizon: 5, Name: "db3"}
		c.Write(c.Geo.Host(3), func(buf []byte) error { return c.SB.Space().EncodeHost(buf, rec) })
		c.put(layout.Slot{Lock: 1, Host: 3, Incarnation: 77, Creation: 1, Sequence: 1, Phase: layout.Held, Ticket: layout.MakeTicket(5, 3)})
		c.Spoil(c.Geo.Entry(1))
		c.Spoil(c.Geo.Entry(2))
		// The entry of lock 1 blocks B first, as if a client had requested that lock.
		b.mem.HeldUp(layout.Complaint{Lock: 1}, true)
		b.mem.HeldUp(layout.Complaint{Lock: 2}, true)
		eventually(t, "y is restored", func() bool {
			_, _, err := b.Create(t.Context(), "z", 1)
			require.ErrorIs(t, err, api.ErrDamaged)
			_, err = c.SB.Space().DecodeEntry(lockspacetest.Contents(t, c.Disk)[c.Geo.Entry(2):], 2)
			return err == nil
		})
	})
}

// TestMendsForItself: no other host knows the damaged entry or complains of it. This host restores
// an entry that blocks one of its own clients.
func TestMendsForItself(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _ := c.settledHost(1) // has finished its own checks of entries
		h := acquire(t, a, Request{Name: "x"})
		before := h.Lock().Entry
		require.NoError(t, h.Release())
		for _, need := range []func() error{
			func() error { _, _, err := a.Create(t.Context(), "y", 1); return err },
			func() error { _, err := a.Request(t.Context(), "z", "please"); return err },
			func() error { return a.Remove(t.Context(), "z", false) },
		} {
			a.dir.Forget(before)
			c.Spoil(c.Geo.Entry(1))
			eventually(t, "it is restored", func() bool {
				if err := need(); err != nil && !errors.Is(err, api.ErrNoLock) {
					require.ErrorIs(t, err, api.ErrDamaged)
				}
				e, err := c.SB.Space().DecodeEntry(lockspacetest.Contents(t, c.Disk)[c.Geo.Entry(1):], 1)
				return err == nil && e == before
			})
		}
	})
}

// TestMendsInTheEnd: an entry that a dead remover left is restored by a host that knows and needs
// it, after one failed try.
func TestMendsInTheEnd(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _ := c.settledHost(1)
		h := acquire(t, a, Request{Name: "x"})
		e := h.Lock().Entry
		require.NoError(t, h.Release())
		ghost := layout.Slot{Lock: 1, Host: 2, Incarnation: 77, Creation: e.Creation + 1, Sequence: 1, Phase: layout.Held, Ticket: layout.MakeTicket(e.Creation+5, 2)}
		c.put(ghost)
		intent := layout.Entry{Lock: 1, Creation: e.Creation + 1}
		about := layout.Slot{Lock: lockspace.DirectoryLock, Host: 2, Incarnation: 77, Creation: lockspace.DirectoryCreation, Sequence: 1, Value: layout.Intent(intent).Value()}
		c.Write(c.Geo.Slot(lockspace.DirectoryLock, 2), func(buf []byte) error { return c.SB.Space().EncodeSlot(buf, about) })
		c.Spoil(c.Geo.Entry(1))
		// This try fails: the client leaves before the host has determined the remover's intent.
		require.Error(t, a.restoreKnownEntry(timeout(t, c.SB.Lease/10), a.knownEntry(1)))
		eventually(t, "x can be acquired again", func() bool {
			h, err := a.Acquire(t.Context(), Request{Name: "x"})
			if err != nil {
				require.ErrorIs(t, err, api.ErrDamaged)
				return false
			}
			require.NoError(t, h.Release())
			return true
		})
	})
}
