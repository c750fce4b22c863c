package membership

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestSeveral_JoinsRenewsLeaves_RecordIsOnAllDisks(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		require.Equal(t, uint32(1), m.Generation())
		m.renewal()
		synctest.Wait()
		for i := range d.disk {
			r := d.record(i, 1)
			require.Equal(t, layout.StateLive, r.State)
			require.Equal(t, uint32(1), r.Generation)
			require.Equal(t, uint64(7), r.Epoch)
		}
		m.Leave()
		m.Wait()
		require.Equal(t, []layout.HostState{3, 3, 3}, d.states(1))
		require.Equal(t, []uint64{d.record(0, 1).Incarnation}, m.ids.LeftIncarnations())
		m.ids.ReleaseLockFiles()
		begun := time.Now()
		next := d.boot("a", m).start(nil).live()
		require.Equal(t, uint32(2), next.Generation())
		require.Less(t, time.Since(begun), time.Second) // it takes the short claim
	})
}

// TestSeveral_MinorityGone_RenewsOnTime: whether it fails or hangs. When it is back, it gets the record.
func TestSeveral_MinorityGone_RenewsOnTime(t *testing.T) {
	fails, returns := (*machine).disappear, func(m *machine, i int) { m.missing[i].Store(false) }
	hangs, continues := func(m *machine, i int) { m.view(i).Hang(disktest.Fault{}) }, func(m *machine, i int) { m.view(i).RemoveFaults() }
	for _, c := range []struct {
		name       string
		disks      int
		gone       []int
		leave, end func(*machine, int)
	}{
		{"one of three fails", 3, []int{1}, fails, returns},
		{"one of three hangs", 3, []int{1}, hangs, continues},
		{"two of five fail", 5, []int{1, 3}, fails, returns},
		{"two of five hang", 5, []int{1, 3}, hangs, continues},
	} {
		t.Run(c.name, func(t *testing.T) {
			onDisks(t, c.disks, func(t *testing.T, d *disks) {
				m := d.boot("a", nil).start(nil).live()
				m.renewal()
				for _, i := range c.gone {
					c.leave(m, i)
				}
				for range 20 {
					require.LessOrEqual(t, m.renewal(), d.times().Renew())
				}
				for _, i := range c.gone {
					require.Less(t, d.record(i, 1).Sequence, d.record(0, 1).Sequence)
					c.end(m, i)
				}
				m.renewal()
				time.Sleep(2 * d.times().Retry())
				for _, i := range c.gone {
					require.Equal(t, d.record(0, 1).Sequence, d.record(i, 1).Sequence)
				}
				require.NotContains(t, m.log.String(), "IO hangs")
			})
		})
	}
}

func TestSeveral_MajorityGone_LeaseEndsAndHostJoinsAgain(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		synctest.Wait()
		begun := time.Now()
		m.disappear(0)
		m.disappear(2)
		<-m.Lost()
		require.Equal(t, d.sb.Lease, time.Since(begun))
		m.Wait()
		require.Equal(t, []uint64{d.record(1, 1).Incarnation}, m.ids.LeftIncarnations()) // no write of it can land
		m.shutDown()
		next := d.boot("a", m).start(nil).live()
		require.Equal(t, uint32(2), next.Generation())
		require.Equal(t, []uint64{d.record(1, 1).Incarnation, d.record(2, 1).Incarnation}, []uint64{next.Incarnation(), next.Incarnation()})
	})
}

// TestSeveral_IOHangs_LogNamesTheDisks: those that do not answer, and no other one.
func TestSeveral_IOHangs_LogNamesTheDisks(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		m.disappear(0)
		m.renewal()
		m.view(2).Hang(disktest.Fault{})
		<-m.Lost()
		m.view(2).RemoveFaults()
		m.Wait()
		require.Regexp(t, `msg="lease lost, every hold is over" err="the lease ran out: IO hangs: reading the host table, for \d.*s, on disk0 \(down, oldest request 0s\), disk2 \(hangs, oldest request \d.*s\)"`, m.log.String())
		require.ErrorIs(t, m.Err(), lease.ErrExpired)
		require.Regexp(t, `msg="IO hangs" .*what="reading the host table" not_answering="disk0 \(down, oldest request 0s\), disk2 \(hangs, oldest request \d.*s\)"`, m.log.String())
	})
}

// TestSeveral_TwoHostsClaimOneID_OneIsLive: the one whose writes land last. If that is another one on each
// disk, none need be.
func TestSeveral_TwoHostsClaimOneID_OneIsLive(t *testing.T) {
	for _, c := range []struct {
		name  string
		late  [][]int // by host, the disks on which its claim is late
		least int     // number of hosts that are live
	}{
		{"in one order", [][]int{{}, {0, 1, 2}}, 1},
		{"in another order on disk 1", [][]int{{1}, {0, 2}}, 0},
		{"in any order on disk 2", [][]int{{0}, {1}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			onDisks(t, 3, func(t *testing.T, d *disks) {
				hosts := []*machine{d.boot("a", nil), d.boot("b", nil)}
				for i, m := range hosts {
					for _, disk := range c.late[i] {
						m.view(disk).Inject(d.own(disktest.Fault{Op: blockdev.OpWrite, Delay: 20 * time.Millisecond, Times: 1}))
					}
					m.start(nil)
				}
				live := 0
				for _, m := range hosts {
					select {
					case <-m.Ready():
						live++
						m.renewal()
					case <-m.Over():
						require.Error(t, m.Err())
						require.Zero(t, m.Moments().Deadline) // it was never live
					}
				}
				require.GreaterOrEqual(t, live, c.least)
				require.LessOrEqual(t, live, 1)
			})
		})
	}
}

// TestSeveral_KilledInARenewal_NextProcessContinues: the renewal is on one of three disks. With NOTE-FIRST the
// term has the read horizon that it showed.
func TestSeveral_KilledInARenewal_NextProcessContinues(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.keepTerms().PutTerm(handover.Term{UUID: d.sb.UUID, Boot: handover.BootText(m.Member.boot), HostID: 1, Incarnation: m.Incarnation(),
			T0: clocktest.Clock{}.Now(), Ready: true, Clean: true}) // without a read horizon
		synctest.Wait()
		for i := 1; i < 3; i++ {
			m.view(i).Hang(d.own(disktest.Fault{Op: blockdev.OpWrite}))
		}
		before := d.record(1, 1)
		for d.record(0, 1).Sequence == before.Sequence {
			time.Sleep(d.times().Renew())
		}
		half := d.record(0, 1)
		m.keeper.Close()
		m.kill()
		next := d.boot("a", m).resume()
		next.live()
		require.True(t, next.Resumed())
		require.Equal(t, half.Incarnation, next.Incarnation())
		require.Equal(t, half.ReadHorizon, next.cfg.Lease.Resume.ReadHorizon)
		require.False(t, next.cfg.Lease.Resume.Clean)
		require.Equal(t, half.Generation, next.Generation())
		next.renewal()
		synctest.Wait()
		for i := range d.disk {
			require.Greater(t, d.record(i, 1).Sequence, half.Sequence)
			require.Equal(t, half.Generation, d.record(i, 1).Generation)
		}
		_, term, _, err := handover.Resume(m.dir, d.sb.UUID, 1, clocktest.Clock{}.Now())
		require.NoError(t, err)
		require.Greater(t, term.T0, next.cfg.Lease.Resume.T0) // the previous file gets the terms
	})
}

// TestSeveral_KilledInLeaving_NextProcessDoesNotContinue (LEFT-FIRST): left is on one of three disks.
func TestSeveral_KilledInLeaving_NextProcessDoesNotContinue(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.keepTerms()
		m.renewal()
		synctest.Wait()
		first := m.view(0).Inject(d.own(disktest.Fault{Op: blockdev.OpWrite, Hang: true}))
		for i := 1; i < 3; i++ {
			m.view(i).Hang(d.own(disktest.Fault{Op: blockdev.OpWrite}))
		}
		go m.Leave()
		<-first.Hit()
		_, _, _, err := handover.Resume(m.dir, d.sb.UUID, 1, clocktest.Clock{}.Now())
		require.ErrorIs(t, err, unix.ENOENT) // before any disk has it
		first.Release()
		synctest.Wait()
		require.Equal(t, []layout.HostState{3, 2, 2}, d.states(1))
		m.kill()
		next := d.boot("a", m).start(nil).live()
		require.Equal(t, uint32(2), next.Generation())
	})
}

// TestSeveral_CopyOfASlotInFlight_LeftWaits: not longer than holders may take to stop.
func TestSeveral_CopyOfASlotInFlight_LeftWaits(t *testing.T) {
	for _, returns := range []bool{true, false} {
		t.Run(fmt.Sprint(returns), func(t *testing.T) {
			onDisks(t, 3, func(t *testing.T, d *disks) {
				m := d.boot("a", nil).start(nil).live()
				m.renewal()
				off := d.sb.Geometry.Slot(1, 1)
				release := m.view(2).Hang(disktest.Fault{Op: blockdev.OpWrite, From: off, To: off + 512})
				require.NoError(t, m.Set.Write(d.slot(m.Incarnation(), 1), off))
				begun := time.Now()
				go m.Leave()
				time.Sleep(d.times().Grace() / 2)
				require.Equal(t, []layout.HostState{2, 2, 2}, d.states(1))
				if returns {
					release()
				}
				<-m.Over()
				require.LessOrEqual(t, time.Since(begun), d.times().Grace())
				m.Wait()
				if returns {
					require.Equal(t, []layout.HostState{3, 3, 3}, d.states(1))
					return
				}
				require.Equal(t, []layout.HostState{2, 2, 2}, d.states(1))
				require.Contains(t, m.log.String(), "a write is in flight on disk2")
				require.Empty(t, m.ids.LeftIncarnations())
			})
		})
	}
}

// TestSeveral_LeaseIsNearlyOver_LeftIsNotWritten (LAST-CALL): it waited for too long.
func TestSeveral_LeaseIsNearlyOver_LeftIsNotWritten(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		synctest.Wait()
		release := m.view(2).Hang(disktest.Fault{Op: blockdev.OpWrite})
		require.NoError(t, m.Set.Write(d.slot(m.Incarnation(), 1), d.sb.Geometry.Slot(1, 1)))
		for i := range 2 {
			m.disappear(i)
		}
		budget := d.times().Budget()
		time.Sleep(m.Moments().Deadline - m.cfg.Clock.Now() - 2*budget)
		go m.Leave()
		for i := range 2 {
			m.missing[i].Store(false)
		}
		time.Sleep(budget + time.Millisecond)
		require.Equal(t, mirror.Up, m.Set.Members()[0].State)
		release()
		<-m.Over()
		m.Wait()
		require.Equal(t, []layout.HostState{2, 2, 2}, d.states(1))
	})
}

// TestSeveral_CopyOfLeftInFlight_IncarnationIsNotNamed: the copy may land over the record of a next host. A
// slow one is waited for.
func TestSeveral_CopyOfLeftInFlight_IncarnationIsNotNamed(t *testing.T) {
	for _, fault := range []disktest.Fault{{Hang: true}, {Delay: 20 * time.Millisecond}} {
		t.Run(fmt.Sprint(fault.Delay), func(t *testing.T) {
			onDisks(t, 3, func(t *testing.T, d *disks) {
				m := d.boot("a", nil).start(nil).live()
				m.renewal()
				synctest.Wait()
				fault.Op = blockdev.OpWrite
				m.view(2).Inject(d.own(fault))
				m.Leave()
				m.Wait()
				require.Equal(t, []layout.HostState{3, 3}, d.states(1)[:2])
				require.Equal(t, !fault.Hang, len(m.ids.LeftIncarnations()) == 1)
			})
		})
	}
}

// TestSeveral_LeaseEnds_CopiesThatWaitAreDropped (LAST-CALL): the one in flight lands.
func TestSeveral_LeaseEnds_CopiesThatWaitAreDropped(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		synctest.Wait()
		before := d.record(2, 1).Sequence
		release := m.view(2).Hang(disktest.Fault{Op: blockdev.OpWrite})
		off := d.sb.Geometry.Slot(1, 1)
		for sequence := range uint64(3) {
			require.NoError(t, m.Set.Write(d.slot(m.Incarnation(), sequence+1), off))
			m.renewal()
		}
		m.LoseFor(errors.New("over"))
		m.Wait()
		require.Equal(t, before+3, d.record(0, 1).Sequence)
		release()
		time.Sleep(d.times().Retry())
		require.Equal(t, before+1, d.record(2, 1).Sequence)
		p := blockdev.Alloc(512)
		require.NoError(t, d.disk[2].Open().Read(p, off))
		v, err := d.Version(p, off, 2)
		require.NoError(t, err)
		require.Equal(t, mirror.Version{Epoch: 1, Counter: 1}, v)
	})
}

// TestSeveral_LeaseExpires_CopyInFlight_IncarnationIsNotNamed: the copy may land over the record of a next host.
func TestSeveral_LeaseExpires_CopyInFlight_IncarnationIsNotNamed(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		synctest.Wait()
		m.view(2).Hang(d.own(disktest.Fault{Op: blockdev.OpWrite}))
		m.renewal()
		m.disappear(0)
		m.disappear(1)
		<-m.Lost()
		require.ErrorIs(t, m.Err(), lease.ErrExpired)
		m.Wait()
		require.Empty(t, m.ids.LeftIncarnations())
		_, err := m.write(blockdev.Alloc(512), layout.HostRecord{ID: 1}) // one that was late
		require.ErrorIs(t, err, mirror.ErrDropped)
	})
}

// TestSeveral_TermIsNotContinued_FileStaysAsItWas: its sessions are of that term.
func TestSeveral_TermIsNotContinued_FileStaysAsItWas(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		file := m.keepTerms()
		m.renewal()
		synctest.Wait()
		file.PutTerm(handover.Term{UUID: d.sb.UUID, Boot: handover.BootText(m.Member.boot), HostID: 1, Incarnation: 8})
		file.Close()
		m.kill()
		next := d.boot("a", m).resume().live()
		require.False(t, next.Resumed())
		next.renewal()
		_, term, _, err := handover.Resume(m.dir, d.sb.UUID, 1, clocktest.Clock{}.Now())
		require.NoError(t, err)
		require.Equal(t, uint64(8), term.Incarnation)
	})
}

// TestSeveral_DiskIsMissing_GetsNoClaimLater: another host may have the id by then.
func TestSeveral_DiskIsMissing_GetsNoClaimLater(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil)
		m.disappear(2)
		m.start(nil)
		time.Sleep(d.times().ShortWait() / 2)
		require.Equal(t, []layout.HostState{1, 1, 0}, d.states(1))
		require.Zero(t, m.Set.Members()[2].Behind)
	})
}

// TestSeveral_CountedDiskIsSlow_LookWaitsForIt (COUNT): the claim is on disks 0 and 1, and late on 2.
func TestSeveral_CountedDiskIsSlow_LookWaitsForIt(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil)
		late := m.view(2).Inject(d.own(disktest.Fault{Op: blockdev.OpWrite, Hang: true, Times: 1}))
		m.view(1).Inject(disktest.Fault{Op: blockdev.OpRead, Delay: 20 * time.Millisecond})
		begun := time.Now()
		m.start(nil)
		<-late.Hit()
		time.Sleep(d.times().ClaimBudget())
		late.Release()
		m.live()
		require.Equal(t, uint32(1), m.Generation()) // by the first claim
		require.Less(t, time.Since(begun), 2*d.times().ShortWait())
		begun = time.Now()
		_, err := m.readRows(make([]lease.Record, 4), []int{0, 1, 2})
		require.NoError(t, err)
		require.Zero(t, time.Since(begun)) // a live host does not wait for a slow disk
	})
}

// TestSeveral_FirstToAcknowledgeIsLost_ClaimStandsOnTheOthers (COUNT): the claim is a little later on disk 2.
func TestSeveral_FirstToAcknowledgeIsLost_ClaimStandsOnTheOthers(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil)
		m.view(2).Inject(d.own(disktest.Fault{Op: blockdev.OpWrite, Delay: d.times().ClaimBudget() / 4, Times: 1}))
		m.start(nil)
		time.Sleep(d.times().ShortWait() / 2)
		m.disappear(0)
		m.live()
		require.Equal(t, uint32(1), m.Generation())
		require.Equal(t, []layout.HostState{1, 2, 2}, d.states(1))
	})
}

// TestSeveral_BadSectorOnACountedDisk_ClaimStands: it is in the record of another host.
func TestSeveral_BadSectorOnACountedDisk_ClaimStands(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil)
		late := m.view(2).Inject(d.own(disktest.Fault{Op: blockdev.OpWrite, Hang: true, Times: 1}))
		at := d.sb.Geometry.Host(3)
		m.view(0).Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Err: unix.EIO})
		m.start(nil)
		<-late.Hit()
		late.Release()
		m.live()
		require.Equal(t, uint32(1), m.Generation())
		require.LessOrEqual(t, m.renewal(), d.times().Renew())
	})
}

// TestSeveral_RecordIsDamaged_IsNotTheSameAsMissing: other hosts may read a majority if a disk is missing here.
func TestSeveral_RecordIsDamaged_IsNotTheSameAsMissing(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		at := d.sb.Geometry.Host(3)
		damage := disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Err: unix.EIO}
		m.view(0).Inject(damage)
		copies := func() (damaged int, valid int) {
			records := make([]lease.Record, 4)
			_, err := m.readRows(records, nil)
			require.NoError(t, err)
			for _, c := range records[2].Copies {
				if c.Read && c.Err == nil {
					valid++
				} else if c.Read {
					damaged++
				}
			}
			return damaged, valid
		}
		_, valid := copies()
		require.Equal(t, 2, valid)
		m.view(1).Inject(disktest.Fault{Op: blockdev.OpRead, Delay: time.Millisecond}) // the majority is there without it
		m.view(1).Inject(damage)
		damaged, _ := copies()
		require.Equal(t, 2, damaged)
		m.view(1).RemoveFaults()
		m.disappear(1)
		damaged, valid = copies()
		require.Equal(t, 1, damaged)
		require.LessOrEqual(t, valid, 1)
		m.renewal() // the others can be read
	})
}

// TestSeveral_RecordsDamagedWhileDisksAreGone_ReadWaitsFewTimes: one disk fails, so that the damaged records are
// read alone, and another one hangs. Records of other hosts must not delay the renewal of this one.
func TestSeveral_RecordsDamagedWhileDisksAreGone_ReadWaitsFewTimes(t *testing.T) {
	onDisks(t, 5, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		for host := 2; host <= 4; host++ {
			lockspacetest.Damage(t, d.disk[1].Open(), d.sb.Geometry.Host(host))
		}
		m.disappear(0)
		m.renewal()
		m.view(4).Hang(disktest.Fault{})
		begun := time.Now()
		records := make([]lease.Record, 4)
		_, err := m.readRows(records, nil)
		require.NoError(t, err)
		require.Equal(t, 3*d.times().Budget()/4, time.Since(begun), "of all records, and twice of the damaged ones: less than a budget")
		for _, r := range records[1:] {
			require.True(t, r.Copies[1].Read)
			require.Error(t, r.Copies[1].Err)
		}
	})
}

// TestSeveral_DiskIsWiped_DoesNotCount: without it, the loss of another one ends the lease.
func TestSeveral_DiskIsWiped_DoesNotCount(t *testing.T) {
	for _, wiped := range []int64{2, 8} { // records
		t.Run(fmt.Sprint(wiped), func(t *testing.T) {
			onDisks(t, 3, func(t *testing.T, d *disks) {
				m := d.boot("a", nil).start(nil).live()
				m.renewal()
				synctest.Wait()
				before := d.record(0, 1).Sequence
				require.NoError(t, d.disk[1].Open().Zero(0, 512*wiped))
				m.view(0).Inject(disktest.Fault{Op: blockdev.OpRead, Delay: time.Millisecond}) // so that it is read
				records := make([]lease.Record, 4)
				_, err := m.readRows(records, nil)
				require.NoError(t, err)
				for _, r := range records {
					require.Equal(t, lease.Copy{}, r.Copies[1])
				}
				for range 3 {
					m.renewal()
				}
				require.Equal(t, mirror.Down, m.Set.Members()[1].State)
				require.Contains(t, m.log.String(), "disk1")
				require.LessOrEqual(t, d.record(1, 1).Sequence, before) // nothing is written there
				m.disappear(2)
				<-m.Lost()
			})
		})
	}
}

// TestSeveral_OneSuperblockIsDamaged_DiskStillCounts: also if the table is read twice, because of bad sectors.
func TestSeveral_OneSuperblockIsDamaged_DiskStillCounts(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		require.NoError(t, d.disk[2].Open().Write(disktest.Random(1, 512), d.sb.Geometry.Superblock(1)))
		at := d.sb.Geometry.Host(3)
		for i := range 2 {
			m.view(i).Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Delay: time.Millisecond, Err: unix.EIO})
		}
		_, err := m.readRows(make([]lease.Record, 4), nil)
		require.NoError(t, err)
		require.Zero(t, m.Set.Members()[2].Failures)
	})
}

// TestSeveral_DiskLostAcknowledgedWrites_DoesNotCount (OWN): its superblocks are right.
func TestSeveral_DiskLostAcknowledgedWrites_DoesNotCount(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		synctest.Wait()
		snapshot, off := blockdev.Alloc(512), d.sb.Geometry.Host(1)
		require.NoError(t, d.disk[1].Open().Read(snapshot, off))
		m.renewal()
		synctest.Wait()
		require.NoError(t, d.disk[1].Open().Write(snapshot, off))
		m.requireLost(1)
		m.renewal()
	})
}

// TestSeveral_DiskFailsAndLosesAcknowledgedWrites_DoesNotCount (OWN): that its last write failed is no excuse.
func TestSeveral_DiskFailsAndLosesAcknowledgedWrites_DoesNotCount(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		synctest.Wait()
		snapshot, off := blockdev.Alloc(512), d.sb.Geometry.Host(1)
		require.NoError(t, d.disk[1].Open().Read(snapshot, off))
		m.renewal()
		synctest.Wait()
		m.view(1).Inject(disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO})
		m.renewal()
		synctest.Wait()
		require.NoError(t, d.disk[1].Open().Write(snapshot, off))
		m.requireLost(1)
	})
}

// requireLost requires that a read of the table finds that a disk lost writes, before a look at it does.
func (m *machine) requireLost(disk int) {
	m.t.Helper()
	m.view(0).Inject(disktest.Fault{Op: blockdev.OpRead, Delay: time.Millisecond}) // so that the disk is read
	_, err := m.readRows(make([]lease.Record, 4), nil)
	require.NoError(m.t, err)
	synctest.Wait()
	require.Equal(m.t, mirror.Down, m.Set.Members()[disk].State)
}

// TestSeveral_DiskIsSlow_LeavesNoSlotBehind: no host writes the slots of one that is gone.
func TestSeveral_DiskIsSlow_LeavesNoSlotBehind(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.view(2).Inject(disktest.Fault{Op: blockdev.OpWrite, Delay: 200 * time.Millisecond})
		at := d.sb.Geometry.Slot(1, 1)
		require.NoError(t, m.Set.Write(d.slot(m.Incarnation(), 1), at))
		require.NoError(t, m.Set.Write(d.slot(m.Incarnation(), 2), at))
		m.Leave()
		p := blockdev.Alloc(512)
		require.NoError(t, d.disk[2].Open().Read(p, at))
		s, err := d.sb.Space().DecodeSlot(p, 1, 1)
		require.NoError(t, err)
		require.EqualValues(t, 2, s.Sequence)
	})
}

// TestSeveral_LateClaimOfAnotherHost_DiskStillCounts: the claim read the same record as the own one, and a disk
// that shows it has lost nothing.
func TestSeveral_LateClaimOfAnotherHost_DiskStillCounts(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		m.renewal()
		synctest.Wait()
		p := blockdev.Alloc(512)
		require.NoError(t, d.sb.Space().EncodeHost(p, layout.HostRecord{ID: 1, State: layout.StateJoining, Generation: 1, Sequence: 1, Incarnation: 8}))
		d.Place(p, 1)
		require.NoError(t, d.disk[1].Open().Write(p, d.sb.Geometry.Host(1)))
		m.view(0).Inject(disktest.Fault{Op: blockdev.OpRead, Delay: time.Millisecond}) // so that it is read
		m.renewal()
		m.renewal()
		synctest.Wait()
		require.Equal(t, m.Incarnation(), d.record(1, 1).Incarnation)
		require.Zero(t, m.Set.Members()[1].Failures)
	})
}

// TestSeveral_DisksAreFormattedAgain_LeaseEnds.
func TestSeveral_DisksAreFormattedAgain_LeaseEnds(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		m := d.boot("a", nil).start(nil).live()
		for i := range d.disk {
			sb := d.sb
			sb.UUID, sb.Position = layout.UUID{8}, i+1
			lockspacetest.PutSuperblocks(t, d.disk[i].Open(), sb)
		}
		<-m.Lost()
		require.ErrorIs(t, m.Err(), errReplaced)
	})
}
