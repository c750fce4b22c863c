package membership

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// vacate writes the next list, in which a position is vacant, on some disks.
func (d *disks) vacate(position int, on ...int) { d.fill(position, layout.UUID{}, on...) }

// fill writes the next list, in which another disk is at a position, on some disks.
func (d *disks) fill(position int, disk layout.UUID, on ...int) {
	d.t.Helper()
	d.sb.Members.Epoch++
	d.sb.Members.Disks[position-1] = disk
	for _, i := range on {
		sb := d.sb
		sb.Position = i + 1
		lockspacetest.PutSuperblocks(d.t, d.disk[i].Open(), sb)
	}
}

func (m *machine) requireEpoch(want uint64) {
	m.t.Helper()
	require.Equal(m.t, want, m.Superblock().Members.Epoch)
}

// shows returns the epochs that the record of a host shows on the disks.
func (d *disks) shows(host int) (epochs []uint64) {
	for i := range d.disk {
		epochs = append(epochs, d.record(i, host).Epoch)
	}
	return epochs
}

// TestList_Changes_LiveHostsFollowAndShowIt: each sees it in the superblocks by its next renewal.
func TestList_Changes_LiveHostsFollowAndShowIt(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		a := d.boot("a", nil).start(nil).live()
		b := d.boot("b", nil).start(func(cfg *Config) { cfg.Lease.ID = 2 }).live()
		incarnation := a.Incarnation()
		d.vacate(3, 0, 1)
		time.Sleep(d.times().Renew() + time.Second)
		synctest.Wait()
		for _, m := range []*machine{a, b} {
			m.requireEpoch(8)
			require.Equal(t, mirror.Down, m.Members()[2].State)
			require.True(t, m.Live(m.Member.cfg.Clock.Now()))
		}
		require.Equal(t, []uint64{8, 8, 7}, d.shows(1))
		require.Equal(t, []uint64{8, 8, 7}, d.shows(2))
		require.Equal(t, incarnation, a.Incarnation())
		time.Sleep(2 * d.sb.Lease)
		require.True(t, a.Live(a.Member.cfg.Clock.Now()))
		require.NotContains(t, a.log.String(), "level=WARN")
	})
}

// TestList_AnotherHostShowsIt_IsFollowed: the list is on one disk, which is too slow for the table's reads.
func TestList_AnotherHostShowsIt_IsFollowed(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		a := d.boot("a", nil).start(nil).live()
		b := d.boot("b", nil).start(func(cfg *Config) { cfg.Lease.ID = 2 }).live()
		a.view(1).Inject(disktest.Fault{Op: blockdev.OpRead, Delay: time.Second})
		d.vacate(3, 1)
		_, err := b.Follow()
		require.NoError(t, err)
		a.requireEpoch(7)
		b.renewal()
		b.renewal()
		require.Equal(t, uint64(8), d.record(0, 2).Epoch)
		time.Sleep(d.times().Renew() + 5*time.Second)
		synctest.Wait()
		a.requireEpoch(8)
		a.renewal()
		require.Equal(t, uint64(8), d.record(0, 1).Epoch)
	})
}

// TestList_ShownByNoLiveHost_IsNotLookedFor: a host that changed the list has ended before it wrote that to a disk.
func TestList_ShownByNoLiveHost_IsNotLookedFor(t *testing.T) {
	for _, state := range []layout.HostState{layout.StateJoining, layout.StateLive, layout.StateLeft} {
		onDisks(t, 3, func(t *testing.T, d *disks) {
			put := &lockspacetest.Several{T: t, Disks: d.disk, SB: d.sb}
			put.Put(d.sb.Geometry.Host(2), func(buf []byte) error {
				return d.sb.Space().EncodeHost(buf, layout.HostRecord{ID: 2, Incarnation: 5, Generation: 1, Sequence: 1, State: state, ReadHorizon: 2, Epoch: 8})
			})
			m := d.boot("a", nil).start(nil).live()
			time.Sleep(2 * d.times().Dead())
			synctest.Wait()
			const warning = "the newest list of member disks was not found"
			require.Equal(t, state == layout.StateLive, strings.Contains(m.log.String(), warning))
			said := strings.Count(m.log.String(), warning)
			time.Sleep(time.Hour)
			require.Equal(t, said, strings.Count(m.log.String(), warning))
			require.True(t, m.Live(m.Member.cfg.Clock.Now()))
		})
	}
}

// TestList_PathHangs_RenewalsGoOn: the superblocks are read in the background, and that ends in time.
func TestList_PathHangs_RenewalsGoOn(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		never := make(chan struct{})
		defer close(never)
		m.hung.Store(&never)
		d.vacate(3, 0, 1)
		for range 5 {
			m.renewal()
		}
		m.requireEpoch(7) // no path answers
		require.Equal(t, []uint64{7, 7, 7}, d.shows(1))
		require.Contains(t, m.log.String(), `level=WARN msg="the newest list of member disks was not found, trying again" epoch=8 used=7 err="no member disk answers; disk0: no answer within`)
		m.hung.Store(nil)
		time.Sleep(2 * d.times().Renew())
		m.requireEpoch(7) // each read that hangs occupies a thread: its path is not read again
	})
}

// TestList_ChangesAfterTheClaim_IsInUseBeforeTheHostIsLive (BEFORE-LIVE).
func TestList_ChangesAfterTheClaim_IsInUseBeforeTheHostIsLive(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil)
		for d.record(0, 1).State != layout.StateJoining {
			time.Sleep(time.Millisecond)
		}
		first := d.record(0, 1)
		require.Equal(t, uint64(7), first.Epoch)
		d.vacate(3, 0, 1)
		m.live()
		m.requireEpoch(8)
		r := d.record(0, 1)
		require.Equal(t, layout.StateLive, r.State)
		require.Equal(t, uint64(8), r.Epoch)
		require.NotEqual(t, first.Incarnation, r.Incarnation)
		require.NotEqual(t, layout.StateLive, d.record(2, 1).State) // never by the old list
	})
}

// TestList_BadSectorsElsewhere_ListIsRead: reads of several records fail on a majority.
func TestList_BadSectorsElsewhere_ListIsRead(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil)
		for i := range 2 {
			at := d.sb.Geometry.Host(3 + i)
			m.view(i).Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Err: unix.EIO})
		}
		m.start(nil).live()
		epoch, err := m.readRows(make([]lease.Record, 4), nil)
		require.NoError(t, err)
		require.Equal(t, uint64(7), epoch)
	})
}

// TestList_CopyInFlightToTheOldDisk_LeavesOnceThatIsReplaced (LEFT): while the position is vacant, the next host with
// this id may use the old disk, and the copy would land over its record.
func TestList_CopyInFlightToTheOldDisk_LeavesOnceThatIsReplaced(t *testing.T) {
	for _, filled := range []bool{false, true} {
		onDisks(t, 3, func(t *testing.T, d *disks) {
			m := d.boot("a", nil).start(nil).live()
			lands := m.view(2).Hang(d.own(disktest.Fault{Op: blockdev.OpWrite}))
			defer lands()
			m.renewal()
			d.vacate(3, 0)
			if filled {
				d.fill(3, layout.UUID{9}, 0, 1)
			}
			for m.Superblock().Members.Epoch != d.sb.Members.Epoch {
				m.renewal()
			}
			m.Leave()
			synctest.Wait()
			require.Equal(t, filled, d.record(0, 1).State == layout.StateLeft)
			require.Equal(t, !filled, strings.Contains(m.log.String(), "a write is in flight on member 3"))
		})
	}
}

// TestList_OneSuperblockUnreadable_HostIsLive: each disk has a copy, which a bad sector does not hide.
func TestList_OneSuperblockUnreadable_HostIsLive(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil)
		for i := range 3 {
			m.view(i).Inject(disktest.Fault{Op: blockdev.OpRead, From: int64(512 * (i % 2)), To: int64(512*(i%2) + 512), Err: unix.EIO})
		}
		m.start(nil).live()
	})
}

// TestList_NextProcessFindsAnOlderOne_WaitsForIt (NOTE-FIRST): the process before has followed a half-written list.
func TestList_NextProcessFindsAnOlderOne_WaitsForIt(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.keepTerms()
		d.vacate(3, 1)
		for d.record(0, 1).Epoch == 7 {
			m.renewal()
			synctest.Wait()
		}
		m.keeper.Close()
		m.kill()
		next := d.bootWithout("a", m, 1)
		next.requireEpoch(7)
		next.resume()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		select {
		case <-next.Ready():
			t.Fatal("it uses a disk that others do not")
		default:
		}
		require.Contains(t, next.log.String(), lease.ErrOldList.Error())
		next.missing[1].Store(false)
		next.live()
		require.True(t, next.Resumed())
		next.requireEpoch(8)
	})
}
