package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// A writer to the device that is no host: a misdirected write, a host's damaged memory, a person
// with dd. Random damage is detected by a record's checksum, address and uuid: locks may stall, and
// are never held twice. A record with a correct checksum at its place is believed, as it must be;
// TestForgedRecords shows its possible effects.

// victims are hosts that take locks continuously, and detect two that are inside together.
type victims struct {
	c     *cluster
	hosts []*running
	locks []string

	mu     sync.Mutex
	inside map[string][]*locks.Hold
	last   map[string]layout.Ticket
	grants map[string]int // by host and lock

	stop chan struct{}
	wg   sync.WaitGroup
}

func newVictims(c *cluster, strict bool) *victims {
	v := &victims{c: c, locks: []string{"a", "b"}, inside: map[string][]*locks.Hold{}, last: map[string]layout.Ticket{}, grants: map[string]int{}, stop: make(chan struct{})}
	for id := 1; id <= 3; id++ {
		v.hosts = append(v.hosts, c.run(id))
	}
	for _, name := range v.locks {
		for _, r := range v.hosts {
			require.NoError(c.t, acquire(c.t, r.d, locks.Request{Name: name}).Release())
		}
	}
	for i, r := range v.hosts {
		for _, name := range v.locks {
			v.wg.Go(func() { v.work(i, r, name, strict) })
		}
	}
	return v
}

func (v *victims) work(i int, r *running, name string, strict bool) {
	for n := 0; ; n++ {
		select {
		case <-v.stop:
			return
		default:
		}
		d, err := r.svc.Joined()
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		h, err := d.Acquire(ctx, locks.Request{Name: name})
		cancel()
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		v.enter(i, name, h, strict)
		time.Sleep([]time.Duration{0, time.Millisecond, 2 * driver.SettleAfter}[n%3])
		v.leave(name, h)
		_ = h.Release() // it may be lost by now
	}
}

func (v *victims) enter(i int, name string, h *locks.Hold, strict bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, other := range v.inside[name] {
		select {
		case <-other.Lost():
		default:
			if h.Err() == nil && strict {
				v.c.t.Errorf("host %d holds %q by %v together with one that holds it by %v", i+1, name, h.Token(), other.Token())
			}
		}
	}
	if strict && h.Token() <= v.last[name] {
		v.c.t.Errorf("token %v of %q after %v", h.Token(), name, v.last[name])
	}
	v.last[name] = h.Token()
	v.inside[name] = append(v.inside[name], h)
	v.grants[fmt.Sprint(i+1, name)]++
}

func (v *victims) leave(name string, h *locks.Hold) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, x := range v.inside[name] {
		if x == h {
			v.inside[name] = append(v.inside[name][:i:i], v.inside[name][i+1:]...)
			return
		}
	}
}

// recover waits until every host has had every lock again.
func (v *victims) recover() {
	v.c.t.Helper()
	v.mu.Lock()
	clear(v.grants)
	v.mu.Unlock()
	eventually(v.c.t, "every host gets every lock again", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return len(v.grants) == len(v.hosts)*len(v.locks)
	})
	close(v.stop)
	within(v.c.t, "the end", v.wg.Wait)
}

// places returns the places of the records in use. Slots of a host that never joined are not among
// them: no host rewrites them before it joins, and a damaged one in lock 0 blocks the creation and
// removal of locks, as bakeryctl check reports.
func (v *victims) places() (all []int64) {
	g := v.c.SB.Geometry
	for id := 1; id <= 3; id++ {
		all = append(all, g.Host(id))
	}
	for lock := range 3 {
		if lock > 0 {
			all = append(all, g.Entry(lock))
		}
		for id := 1; id <= 3; id++ {
			all = append(all, g.Slot(lock, id))
		}
	}
	return all
}

// TestVandal: bits flip, garbage lands at any byte, records appear at other places or are of
// another lockspace. Nothing is held twice, nothing panics, and tokens grow. When it ends, every
// host gets every lock again.
func TestVandal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		v := newVictims(c, true)
		dev := c.Disk.Open()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dice := rand.New(rand.NewPCG(seed, 0))
		places, sector, other := v.places(), blockdev.Alloc(c.Geo.Stride), blockdev.Alloc(c.Geo.Stride)
		hits := 0
		for begin := time.Now(); time.Since(begin) < 2*time.Second; hits++ {
			off := places[dice.IntN(len(places))]
			if hits%16 == 0 {
				// one of the two at most: without both there is no lockspace
				off = c.Geo.Superblock(0)
			}
			require.NoError(t, dev.Read(sector, off))
			switch dice.IntN(5) {
			case 0:
				for range 1 + dice.IntN(8) {
					sector[dice.IntN(layout.RecordSize)] ^= 1 << dice.IntN(8)
				}
			case 1:
				from := dice.IntN(layout.RecordSize)
				for i := range 1 + dice.IntN(layout.RecordSize-from) {
					sector[from+i] = byte(dice.Uint32())
				}
			case 2:
				for i := range sector {
					sector[i] = byte(dice.Uint32())
				}
			case 3: // misplaced, or half of it
				require.NoError(t, dev.Read(other, places[dice.IntN(len(places))]))
				copy(sector[:[]int{256, 512}[dice.IntN(2)]], other)
			case 4: // of another lockspace
				copy(sector[24:40], "another lockspace")
				lockspacetest.Forge(sector, off)
			}
			// a flip that was flipped back, or a copy onto itself
			if sound(c.SB.Space(), sector, off) {
				continue
			}
			require.NoError(t, dev.Write(sector, off))
			time.Sleep(time.Duration(dice.IntN(30)) * time.Millisecond)
		}
		// as bakeryctl check --repair does
		require.NoError(t, check.RewriteSuperblock(dev, lockspace.KindSuperblock, func(string) {}))
		t.Logf("%d hits", hits)
		v.recover()
	})
}

// sound reports whether a sector is valid at a place.
func sound(s layout.Space, sector []byte, off int64) bool {
	found := false
	_ = lockspace.Walk(onlySector{sector, off, s.Geometry}, layout.Superblock{UUID: s.UUID, Geometry: s.Geometry, Lease: time.Second}, func(r lockspace.Record) error {
		found = found || r.Offset == off && r.Err == nil
		return nil
	})
	virgin := true
	for _, b := range sector[:layout.RecordSize] {
		virgin = virgin && b == 0
	}
	return found || virgin
}

// onlySector is a device with one sector.
type onlySector struct {
	sector []byte
	off    int64
	g      layout.Geometry
}

func (d onlySector) Read(p []byte, off int64) error {
	clear(p)
	if at := d.off - off; at >= 0 && at < int64(len(p)) {
		copy(p[at:], d.sector)
	}
	return nil
}

func (d onlySector) Write([]byte, int64) error { return errors.New("no") }

func (d onlySector) Zero(int64, int64) error { return errors.New("no") }

func (d onlySector) Stats() blockdev.Stats { return blockdev.Stats{} }

func (d onlySector) Info() blockdev.Info {
	return blockdev.Info{Size: d.g.Size(), LogicalBlock: 512, PhysicalBlock: 512}
}

func (d onlySector) Close() error { return nil }

// TestForgedRecords: false records with a correct checksum at their place. They have the effects
// that a host's records have: they void a hold by a verdict or a zeroed slot, give a lock more
// permits, or use up its numbers. No writer to the device can be prevented from that. But nothing
// panics, and all hosts recover: when the records are gone and every bakeryd is restarted, every
// host gets every lock again.
func TestForgedRecords(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		v := newVictims(c, false)
		dev, s, g := c.Disk.Open(), c.SB.Space(), c.SB.Geometry
		entries := []layout.Entry{c.Entry(1), c.Entry(2)}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dice := rand.New(rand.NewPCG(seed, 0))
		incarnation := func() uint64 {
			known := []uint64{1, 1<<64 - 1}
			for _, r := range v.hosts {
				if d, err := r.svc.Joined(); err == nil {
					known = append(known, d.mem.Incarnation())
				}
			}
			return known[dice.IntN(len(known))]
		}
		buf := blockdev.Alloc(g.Stride)
		for begin := time.Now(); time.Since(begin) < 2*time.Second; {
			id, lock := 1+dice.IntN(4), dice.IntN(3)
			clear(buf)
			off := g.Slot(lock, id)
			number := uint64(time.Now().UnixMicro()/256) + uint64(dice.IntN(1<<20)) - 1<<10
			switch dice.IntN(6) {
			case 0: // zeroes
				off = v.places()[dice.IntN(len(v.places()))]
			case 1:
				off = g.Host(id)
				r := layout.HostRecord{ID: id, Incarnation: incarnation(), State: layout.HostState(1 + dice.IntN(3)), Sequence: dice.Uint64() >> dice.IntN(64), ReadHorizon: dice.IntN(5),
					WatchdogArmed: true, WatchdogSeconds: uint16(dice.IntN(3)), PRKey: dice.Uint64(), Name: "\u202eevil"}
				for range dice.IntN(layout.MaxVerdicts) {
					r.Verdicts = append(r.Verdicts, layout.Verdict{Host: 1 + dice.IntN(4), Incarnation: incarnation(), Kind: layout.VerdictKind(dice.IntN(3))})
				}
				for range dice.IntN(layout.MaxComplaints) {
					r.Complaints = append(r.Complaints, layout.Complaint{Host: 1 + dice.IntN(4), Lock: dice.IntN(5)})
				}
				require.NoError(t, s.EncodeHost(buf, r))
			case 2:
				e := entries[dice.IntN(2)]
				off = g.Entry(e.Lock)
				e.Permits, e.Creation = 1+dice.IntN(layout.MaxHosts), e.Creation+uint64(dice.IntN(3))
				if dice.IntN(2) == 0 {
					e.Name, e.Permits = "", 0
				}
				require.NoError(t, s.EncodeEntry(buf, e))
			default:
				r := layout.Slot{Lock: lock, Host: id, Incarnation: incarnation(), Sequence: dice.Uint64(), Phase: layout.Phase(dice.IntN(4)), Mode: layout.Mode(dice.IntN(2)),
					Ticket: layout.MakeTicket(number, id), ValueToken: layout.MakeTicket(number, 1+dice.IntN(4)), Holder: layout.Holder{PID: 1<<31 - 1, Command: "\u009b"[:0]},
					Creation: lockspace.DirectoryCreation, Request: layout.Request{Ticket: layout.MakeTicket(number, id), At: endOfTime, Message: "x"}}
				if lock > 0 {
					r.Creation = entries[lock-1].Creation + uint64(dice.IntN(3)) - 1
				}
				if dice.IntN(2) == 0 {
					r.Value = layout.Intent{Lock: 1 + dice.IntN(4), Name: "a", Permits: 1, Creation: number}.Value()
				}
				require.NoError(t, s.EncodeSlot(buf, r))
			}
			require.NoError(t, dev.Write(buf, off))
			for _, r := range v.hosts { // all is read meanwhile
				if d, err := r.svc.Joined(); err == nil && dice.IntN(8) == 0 {
					_, _ = d.Status()
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					_, _ = d.Request(ctx, "a", "x")
					_, _ = d.Value(ctx, "b")
					cancel()
				}
			}
			time.Sleep(time.Duration(dice.IntN(20)) * time.Millisecond)
		}
		close(v.stop)
		within(t, "the end of the workers", v.wg.Wait)
		for _, r := range v.hosts {
			r.stop()
			within(t, "the end of a service", func() { <-r.ended })
			r.ended = nil
		}
		clear(buf)
		// also those of a host that never was
		forged := append(v.places(), g.Host(4), g.Slot(0, 4), g.Slot(1, 4), g.Slot(2, 4))
		for _, off := range forged {
			require.NoError(t, dev.Write(buf, off))
		}
		for _, e := range entries {
			c.WriteEntry(e)
		}
		again := newVictims(c, true)
		again.recover()
	})
}

// TestZeroedHostRecord: no host takes a host that has joined for one that never did. Its own
// bakeryd joins again.
func TestZeroedHostRecord(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r, b := c.run(1), c.host(2)
		a := r.d
		h := acquire(t, a, locks.Request{Name: "x"})
		next := start(t, b, locks.Request{Name: "x"})
		eventually(t, "it waits", func() bool { return c.Slot(1, 2).Phase == layout.Waiting })
		c.Write(c.Geo.Host(1), func([]byte) error { return nil })
		entered := got(t, next)
		select {
		case <-h.Lost():
		default:
			t.Error("another host enters, and the holder has not heard")
		}
		require.ErrorIs(t, a.Err(), lease.ErrForeign)
		require.NoError(t, entered.Release())
	})
}

// endOfTime is the last time that a request can have.
var endOfTime = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
