package locks

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func valueOf(t *testing.T, d *testHost) Value {
	t.Helper()
	v, err := d.Value(t.Context(), "x")
	require.NoError(t, err)
	return v
}

// setValue holds the lock while it sets its value.
func setValue(t *testing.T, d *testHost, value string) layout.Ticket {
	t.Helper()
	h := acquire(t, d, Request{Name: "x"})
	require.NoError(t, h.SetValue(t.Context(), []byte(value)))
	require.NoError(t, h.Release())
	return h.Token()
}

func TestValueIsThatOfTheHighestToken(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		_, err := a.Value(t.Context(), "x")
		require.ErrorIs(t, err, api.ErrNoLock)
		h := acquire(t, a, Request{Name: "x"})
		require.Equal(t, Value{Name: "x"}, valueOf(t, b))
		for _, value := range []string{"10.0.0.1:80", "\x00\xff\n", strings.Repeat("v", layout.MaxValue)} {
			require.NoError(t, h.SetValue(t.Context(), []byte(value)))
			for _, d := range []*testHost{a, b} {
				require.Equal(t, Value{Name: "x", Value: []byte(value), Token: h.Token(), Host: 1, HostName: "db1"}, valueOf(t, d))
			}
		}
		err = h.SetValue(t.Context(), make([]byte, layout.MaxValue+1))
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, "257")
		eventually(t, "the hold is shown", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		require.Len(t, valueOf(t, b).Value, layout.MaxValue, "after the slot was written again")
		next := start(t, a, Request{Name: "x"})
		require.NoError(t, h.Release())
		h2 := got(t, next) // by the same ticket
		require.NoError(t, h2.SetValue(t.Context(), []byte("second")))
		require.Equal(t, Value{Name: "x", Value: []byte("second"), Token: h2.Token(), Host: 1, HostName: "db1"}, valueOf(t, b))
		require.NoError(t, h2.Release())
		require.ErrorIs(t, h2.SetValue(t.Context(), []byte("late")), api.ErrLost)

		third := setValue(t, b, "third")
		require.Equal(t, "third", string(valueOf(t, a).Value))
		// a holder that sets no value leaves it as it is
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		require.Equal(t, "third", string(valueOf(t, a).Value))
		require.Equal(t, third, valueOf(t, a).Token)
		cleared := setValue(t, a, "")
		require.Equal(t, Value{Name: "x", Token: cleared, Host: 1, HostName: "db1"}, valueOf(t, b), "not the one before")
	})
}

func TestValueIsSetByWhoHoldsTheLockAlone(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		h := acquire(t, a, reader)
		err := h.SetValue(t.Context(), []byte("v"))
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, "exclusive")
		require.Nil(t, valueOf(t, a).Value)
		require.NoError(t, h.SetMode(t.Context(), layout.Exclusive))
		require.NoError(t, h.SetValue(t.Context(), []byte("v")))
		require.NoError(t, h.SetMode(t.Context(), layout.Shared))
		require.Equal(t, "v", string(valueOf(t, a).Value))
		err = h.SetValue(t.Context(), nil)
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, "acquire it exclusively")
		require.NoError(t, h.Release())

		guard, err := a.attach(lockspace.DirectoryEntry)
		require.NoError(t, err)
		internal := guard.NewHold(Request{}, false)
		require.NoError(t, internal.Acquire(t.Context()))
		require.ErrorIs(t, internal.SetValue(t.Context(), []byte("v")), api.ErrInvalid)
		require.NoError(t, internal.Release())
		_, err = a.Value(t.Context(), "")
		require.ErrorIs(t, err, api.ErrInvalid)
	})
}

// TestValueSurvivesItsWriter: and its next incarnation, which rewrites that slot.
func TestValueSurvivesItsWriter(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		token := setValue(t, a, "from a")
		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, "from a", string(valueOf(t, b).Value))
		again := c.host(1)
		require.NotEqual(t, c.Slot(1, 1).Incarnation, again.mem.Incarnation())
		require.NoError(t, acquire(t, again, Request{Name: "x"}).Release())
		require.Equal(t, again.mem.Incarnation(), c.Slot(1, 1).Incarnation)
		require.Equal(t, Value{Name: "x", Value: []byte("from a"), Token: token, Host: 1, HostName: "db1"}, valueOf(t, b))
	})
}

// TestValueOfALockThatWasRemoved: it does not become that of a lock created later, in the same
// place or by the same name.
func TestValueOfALockThatWasRemoved(t *testing.T) {
	t.Parallel()
	for name, writer := range map[string]int{"of the own slot": 1, "of another host's": 2} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			d := c.host(writer)
			setValue(t, d, "old")
			require.NoError(t, d.Close(t.Context()))
			// As a removal leaves it: above every number in a slot.
			e, s := c.Entry(1), c.Slot(1, writer)
			e.Creation = s.Ticket.Number() + 2
			c.WriteEntry(e)

			a := c.host(1)
			require.Equal(t, Value{Name: "x"}, valueOf(t, a))
			h := acquire(t, a, Request{Name: "x"})
			require.Equal(t, Value{Name: "x"}, valueOf(t, a))
			require.Empty(t, c.Slot(1, 1).Value)
			require.Zero(t, c.Slot(1, 1).ValueToken)
			require.NoError(t, h.SetValue(t.Context(), []byte("new")))
			require.NoError(t, h.Release())
			require.Equal(t, "new", string(valueOf(t, a).Value))
		})
	}
}

// TestValueOfARemovalThatDidNotComeAbout: the slot has its mark, and its value is still the lock's.
func TestValueOfARemovalThatDidNotComeAbout(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		setValue(t, a, "kept")
		require.NoError(t, a.Close(t.Context()))
		s := c.Slot(1, 1)
		s.Creation, s.Phase = s.Ticket.Number()+1, layout.Held
		c.Write(c.Geo.Slot(1, 1), func(buf []byte) error { return c.SB.Space().EncodeSlot(buf, s) })
		require.Equal(t, "kept", string(valueOf(t, b).Value))
		require.NoError(t, acquire(t, c.host(1), Request{Name: "x"}).Release())
		require.Equal(t, c.Entry(1).Creation, c.Slot(1, 1).Creation)
		require.Equal(t, "kept", string(valueOf(t, b).Value))
	})
}

// TestValueOfANameThatMoved: the remembered directory may be old.
func TestValueOfANameThatMoved(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		setValue(t, a, "old")
		require.Equal(t, "old", string(valueOf(t, b).Value))
		e := c.Entry(1)
		c.WriteEntry(layout.Entry{Lock: 1, Creation: e.Creation + 1})
		_, err := b.Value(t.Context(), "x")
		require.ErrorIs(t, err, api.ErrNoLock)
		require.ErrorContains(t, err, `"x"`)
		e.Lock, e.Creation = 2, e.Creation+2
		c.WriteEntry(e)
		require.Equal(t, Value{Name: "x"}, valueOf(t, b))
	})
}

func TestValueOfSlotsThatCannotBeRead(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		b, disk := c.faultyHost(2)
		setValue(t, a, "v")
		slots := disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Returns: disktest.Garbage, Times: 3}
		torn := disk.Inject(slots)
		require.Equal(t, "v", string(valueOf(t, b).Value), "it is read again")
		require.Equal(t, 3, torn.Fired())

		hang := disk.Hang(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2)})
		_, err := b.Value(timeout(t, 20*time.Millisecond), "x")
		require.ErrorIs(t, err, api.ErrTimeout, "no client waits for a hung device")
		hang()

		require.NoError(t, a.Close(t.Context())) // no host rewrites it now
		c.Spoil(c.Geo.Slot(1, 1))
		_, err = b.Value(t.Context(), "x")
		require.ErrorIs(t, err, api.ErrUnreadable)
		require.ErrorContains(t, err, "host 1")
		snapshot, err := lockspace.Inspect(c.Disk.Open())
		require.NoError(t, err)
		_, err = SnapshotValue(snapshot, "x")
		require.ErrorIs(t, err, api.ErrUnreadable)
		again := c.host(1)
		require.NoError(t, acquire(t, again, Request{Name: "x"}).Release())
		require.Nil(t, valueOf(t, b).Value, "it was lost with the sector")
	})
}

func TestValueOfASnapshot(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		setValue(t, a, "first")
		token := setValue(t, b, "second")
		require.NoError(t, acquire(t, a, Request{Name: "y"}).Release())
		snapshot, err := lockspace.Inspect(c.Disk.Open())
		require.NoError(t, err)
		v, err := SnapshotValue(snapshot, "x")
		require.NoError(t, err)
		require.Equal(t, Value{Name: "x", Value: []byte("second"), Token: token, Host: 2, HostName: "db2"}, v)
		v, err = SnapshotValue(snapshot, "y")
		require.NoError(t, err)
		require.Equal(t, Value{Name: "y"}, v)
		_, err = SnapshotValue(snapshot, "z")
		require.ErrorIs(t, err, api.ErrNoLock)
		_, err = SnapshotValue(snapshot, "")
		require.ErrorIs(t, err, api.ErrInvalid)
		c.Spoil(c.Geo.Entry(3))
		snapshot, err = lockspace.Inspect(c.Disk.Open())
		require.NoError(t, err)
		_, err = SnapshotValue(snapshot, "z")
		require.ErrorIs(t, err, api.ErrUnreadable, "it may have been in what cannot be read")
		_, err = a.Value(t.Context(), "z")
		require.ErrorIs(t, err, api.ErrDamaged)
		require.Equal(t, "second", string(valueOf(t, a).Value))
	})
}

// TestValueNeverGoesBack: a reader sees the value as of its call, or a later one, while hosts
// write.
func TestValueNeverGoesBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		var writers, readers sync.WaitGroup
		var mu sync.Mutex
		var latest layout.Ticket // that is known to be set
		done := make(chan struct{})
		for id := 1; id <= 3; id++ {
			f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{Seed: uint64(id)})
			d := c.host(id, through(f))
			t.Cleanup(f.RemoveFaults)
			f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 4),
				Chance: 0.3, Flicker: 2, Delay: 100 * time.Microsecond})
			f.Inject(disktest.Fault{Op: blockdev.OpRead, Delay: 100 * time.Microsecond})
			require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
			writers.Go(func() {
				for range 40 {
					h, err := d.Acquire(t.Context(), Request{Name: "x"})
					if !assertNoError(t, err) {
						return
					}
					if assertNoError(t, h.SetValue(t.Context(), []byte(h.Token().String()))) {
						mu.Lock()
						latest = h.Token()
						mu.Unlock()
					}
					assertNoError(t, h.Release())
				}
			})
			readers.Go(func() {
				for open := true; open; {
					select {
					case <-done:
						open = false
					default:
					}
					mu.Lock()
					before := latest
					mu.Unlock()
					v, err := d.Value(t.Context(), "x")
					if !assertNoError(t, err) {
						return
					}
					if v.Token < before {
						t.Errorf("value of token %v after %v", v.Token, before)
					}
					if v.Token != 0 && string(v.Value) != v.Token.String() {
						t.Errorf("value %q of token %v", v.Value, v.Token)
					}
				}
			})
		}
		within(t, "writing", writers.Wait)
		close(done)
		within(t, "reading", readers.Wait)
	})
}
