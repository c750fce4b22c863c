package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

type hooked struct {
	blockdev.Device
	mu   sync.Mutex
	hook func(write bool, n int, off int64)
}

func (h *hooked) call(write bool, n int, off int64) {
	h.mu.Lock()
	f := h.hook
	h.mu.Unlock()
	if f != nil {
		f(write, n, off)
	}
}

func (h *hooked) set(f func(write bool, n int, off int64)) {
	h.mu.Lock()
	h.hook = f
	h.mu.Unlock()
}

func (h *hooked) Read(p []byte, off int64) error {
	h.call(false, len(p), off)
	return h.Device.Read(p, off)
}

func (h *hooked) Write(p []byte, off int64) error {
	h.call(true, len(p), off)
	return h.Device.Write(p, off)
}

// TestRemoverIsBackBetweenTwoReads: the remover's late write lands, and the remover returns, after
// the entry was read.
func TestRemoverIsBackBetweenTwoReads(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"before the intent is read", "after the intent is read"} {
		runInCluster(t, at, func(t *testing.T, c *cluster) {
			m := c.mortal(1)
			dev := &hooked{Device: c.Disk.Open()}
			b := c.host(2, through(dev))
			third := c.host(3)
			require.NoError(t, acquire(t, m.d, locks.Request{Name: "x"}).Release())
			require.NoError(t, acquire(t, b, locks.Request{Name: "x"}).Release())
			late := m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Slot(0, 1), Late: true, Err: unix.EIO})
			go func() { _ = m.d.Remove(context.Background(), "x", false) }()
			require.Eventually(t, func() bool { return late.Fired() > 0 }, generous, time.Millisecond)
			m.dies(third)
			entryRead, intentRead, once := false, false, false
			dev.set(func(write bool, n int, off int64) {
				if once {
					return
				}
				if !write && n == 512 && off == c.Geo.Entry(1) {
					entryRead = true
					return
				}
				fire := false
				if entryRead && !write && off == c.Geo.Slot(0, 1) && n == 512 {
					fire = at == "before the intent is read"
					intentRead = true
				}
				if intentRead && write && off == c.Geo.Slot(1, 2) {
					fire = at == "after the intent is read"
				}
				if !fire {
					return
				}
				once = true
				n2, err := m.disk.Land()
				t.Log("landed", n2, err)
				m.rise()
				require.Eventually(t, func() bool { return len(c.Slot(0, 1).Value) == 0 }, generous, time.Millisecond)
				t.Log("back")
			})
			asked := start(t, b, locks.Request{Name: "x"})
			h := got(t, asked)
			dev.set(nil)
			t.Log("B holds", h.Lock().Entry, "directory", c.Entry(1), once)
			acquireFails(t, third, locks.Request{Name: "x", Try: true}, api.ErrBusy, "host 2 holds %+v", h.Lock().Entry)
			require.NoError(t, h.Release())
		})
	}
}

// TestCreatorIsBackBetweenTwoReads: a dead creator's write lands, and the creator returns, between
// the scan and the read of the intents.
func TestCreatorIsBackBetweenTwoReads(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		dev := &hooked{Device: c.Disk.Open()}
		b := c.host(2, through(dev))
		third := c.host(3)
		// so that lock 0's driver knows its slot
		_, _, err := b.Create(t.Context(), "unlike", 1)
		require.NoError(t, err)
		late := m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Slot(0, 1), Late: true, Err: unix.EIO})
		_, _, err = m.d.Create(t.Context(), "y", 1)
		require.Error(t, err)
		require.Positive(t, late.Fired())
		m.dies(third)
		var h3 *locks.Hold
		reads := 0 // of the doorway, then of the intents and the entries
		dev.set(func(write bool, n int, off int64) {
			if write || off != c.Geo.Entry(1) && off != c.Geo.Slot(0, 1) || h3 != nil || c.Slot(0, 2).Phase == layout.Idle {
				return
			}
			if reads++; reads < 3 {
				return
			}
			n2, err := m.disk.Land()
			t.Log("landed", n2, err, c.directory())
			h3 = acquire(t, third, locks.Request{Name: "y"})
			m.rise()
			require.Eventually(t, func() bool { return len(c.Slot(0, 1).Value) == 0 }, generous, time.Millisecond)
			t.Log("back")
		})
		_, _, err = b.Create(t.Context(), "z", 1)
		dev.set(nil)
		t.Log(err, c.directory())
		require.NotNil(t, h3)
		_, err = c.host(4).Acquire(t.Context(), locks.Request{Name: "y", Try: true})
		require.Error(t, err, "host 3 holds %+v", h3.Lock().Entry)
		require.NoError(t, h3.Release())
	})
}

// TestRestartOfARemoverBesideADamagedEntry: a remover's bakeryd is restarted while the entry is
// unreadable.
func TestRestartOfARemoverBesideADamagedEntry(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, a := c.mortal(1), c.host(2)
		create(t, a, "x", 2)
		h := acquire(t, a, locks.Request{Name: "x"})
		go func() { _ = m.d.Remove(context.Background(), "x", false) }()
		require.Eventually(t, func() bool { return c.Slot(1, 1).Creation > h.Lock().Entry.Creation }, generous, time.Millisecond)
		m.kill()
		c.Spoil(c.Geo.Entry(1))
		m.rise()
		c.restored(1) // by the holder
		t.Log(c.Slot(1, 1), c.Entry(1))
		require.NoError(t, h.Release())
		for _, d := range []*Host{a, m.d} {
			require.NoError(t, got(t, start(t, d, locks.Request{Name: "x"})).Release())
		}
	})
}

// TestPermitsOfALockRestoredBesideADamagedEntry: a semaphore's holder is restored while the entry
// is damaged.
func TestPermitsOfALockRestoredBesideADamagedEntry(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, a := c.mortal(1), c.host(2)
		create(t, a, "x", 2)
		before := c.Entry(1)
		h := acquire(t, a, locks.Request{Name: "x"})
		s := m.ask(1, "")
		token := s.until("granted").Token
		m.kill()
		c.Spoil(c.Geo.Entry(1))
		m.rise()
		s.again(m, token.String()).granted()
		require.Error(t, holdOf(m.session(s)).SetMode(t.Context(), layout.Shared), "together with an exclusive holder")
		c.restored(1)
		require.Equal(t, before, c.Entry(1))
		require.NoError(t, h.Release())
		s.leave()
	})
}

// TestMendedEntryKeepsPermits: the only host that knows the entry restores it.
func TestMendedEntryKeepsPermits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, a := c.mortal(1), c.host(2)
		create(t, a, "x", 2)
		before := c.Entry(1)
		s := m.ask(1, "")
		token := s.until("granted").Token
		m.kill()
		c.Spoil(c.Geo.Entry(1))
		m.rise()
		s.again(m, token.String()).granted()
		c.restored(1)
		require.Equal(t, before, c.Entry(1))
		s.leave()
	})
}

// TestLock_SlotAndIntentOfGoneHostUnreadable_KeepsItsEntry: the lock is granted, not removed and
// created again.
func TestLock_SlotAndIntentOfGoneHostUnreadable_KeepsItsEntry(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, a := c.mortal(1), c.host(2)
		create(t, a, "x", 2)
		require.NoError(t, acquire(t, m.d, locks.Request{Name: "x"}).Release())
		h := acquire(t, a, locks.Request{Name: "x"})
		require.NoError(t, h.SetValue(t.Context(), []byte("v")))
		require.NoError(t, h.Release())
		entry := c.Entry(1)
		m.dies(a)
		c.Spoil(c.Geo.Slot(0, 1))
		c.Spoil(c.Geo.Slot(1, 1))
		require.NoError(t, got(t, start(t, a, locks.Request{Name: "x"})).Release())
		require.Equal(t, entry, c.Entry(1))
	})
}

// TestDirectory_IntentOfGoneHostUnreadable_CreatesAndRemoves: the host died or left.
func TestDirectory_IntentOfGoneHostUnreadable_CreatesAndRemoves(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, m *mortal, a *Host){
		"died": func(_ *testing.T, m *mortal, a *Host) { m.dies(a) },
		"left": func(t *testing.T, m *mortal, _ *Host) { require.NoError(t, m.d.Close(t.Context())) },
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			m := c.mortal(1)
			var log bytes.Buffer
			a := c.host(2, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			require.NoError(t, acquire(t, m.d, locks.Request{Name: "x"}).Release())
			end(t, m, a)
			c.Spoil(c.Geo.Slot(lockspace.DirectoryLock, 1))
			_, created, err := a.Create(t.Context(), "y", 1)
			require.NoError(t, err)
			require.True(t, created)
			require.NoError(t, a.Remove(t.Context(), "x", false))
			require.Zero(t, c.named("x"))
			require.NoError(t, acquire(t, a, locks.Request{Name: "x"}).Release())
			require.NoError(t, a.Close(t.Context()))
			require.Contains(t, log.String(), "host=1 host_name=db1")
		})
	}
}

// TestLock_RecordOfDeadHolderUnreadable_NextHostEnters: the record becomes unreadable after its
// host is declared dead. Only then another host requests the lock.
func TestLock_RecordOfDeadHolderUnreadable_NextHostEnters(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, a := c.mortal(1), c.host(2)
		acquire(t, m.d, locks.Request{Name: "x"})
		m.dies(a)
		c.Spoil(c.Geo.Host(1))
		eventually(t, "the damage is seen", func() bool { known, _ := a.mem.Known(); return !known[0].Readable })
		require.NoError(t, got(t, start(t, a, locks.Request{Name: "x"})).Release())
	})
}

// TestLock_JoinerDiedWithUnreadableSlot_NextHostEnters: host 2 died, its slot became unreadable, it
// returned, and died again before it was live.
func TestLock_JoinerDiedWithUnreadableSlot_NextHostEnters(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, m := c.host(1), c.mortal(2)
		require.NoError(t, acquire(t, a, locks.Request{Name: "x"}).Release())
		require.NoError(t, acquire(t, m.d, locks.Request{Name: "x"}).Release())
		m.dies(a)
		c.Spoil(c.Geo.Slot(1, 2))
		r := c.HostRecord(2)
		r.Incarnation, r.Sequence, r.State = r.Incarnation+1, r.Sequence+1, layout.StateJoining
		c.Write(c.Geo.Host(2), func(buf []byte) error { return c.SB.Space().EncodeHost(buf, r) })
		eventually(t, "the claim is seen", func() bool { known, _ := a.mem.Known(); return known[1].Incarnation == r.Incarnation })
		require.NoError(t, got(t, start(t, a, locks.Request{Name: "x"})).Release())
		require.Equal(t, r, c.HostRecord(2))
	})
}

// TestTornClearing: the remover dies while it clears the entry, and half of the write lands.
func TestTornClearing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, a, b := c.mortal(1), c.host(2), c.host(3)
		require.NoError(t, acquire(t, a, locks.Request{Name: "x"}).Release())
		crash := m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Entry(1) + 512, Crash: true, Landed: 50})
		go func() { _ = m.d.Remove(context.Background(), "x", false) }()
		within(t, "the crash", func() { <-crash.Hit() })
		m.dies(a)
		for _, d := range []*Host{a, b} {
			var h *locks.Hold
			eventually(t, "the entry is restored", func() (done bool) {
				var err error
				h, err = d.Acquire(timeout(t, generous), locks.Request{Name: "x"})
				// a client gets this until the entry is restored
				if !errors.Is(err, api.ErrDamaged) {
					require.NoError(t, err)
				}
				return err == nil
			})
			require.NoError(t, h.Release())
		}
	})
}
