package mirror_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// A minority fails and returns: reads and writes go on, and what it missed is written again.
func TestSet_MinorityFails_ContinuesAndRestoresIt(t *testing.T) {
	for _, n := range []int{3, 5} {
		bubble(t, n, func(t *testing.T, r *rig) {
			require.NoError(t, r.put(1, 1))
			synctest.Wait()
			for i := range n / 2 {
				r.members[i].Inject(eio)
			}
			require.NoError(t, r.put(1, 2))
			require.NoError(t, r.put(2, 1))
			r.requireGet(1, 2)
			for i := range n / 2 {
				st := r.state(i)
				require.Equal(t, mirror.Down, st.State)
				require.ErrorIs(t, st.Err, unix.EIO)
				require.Equal(t, 2, st.Behind)
				require.Equal(t, 1, r.onDisk(i, 1))
			}
			time.Sleep(2 * retry)
			for i := range n {
				require.Equal(t, mirror.Up, r.state(i).State)
				require.Zero(t, r.state(i).Behind)
				require.Equal(t, 2, r.onDisk(i, 1))
				require.Equal(t, 1, r.onDisk(i, 2))
			}
		})
	}
}

func TestSet_MajorityFails_ReturnsErrorThatNamesThem(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 1))
		r.members[0].Inject(eio)
		r.members[2].Inject(eio)
		for range 2 { // when the requests fail, and when it is known that the disks are down
			_, read := r.get(1, 2)
			for _, err := range []error{read, r.put(1, 2)} {
				require.ErrorIs(t, err, mirror.ErrNoMajority)
				require.ErrorIs(t, err, unix.EIO)
				require.ErrorContains(t, err, "disk0: ")
				require.ErrorContains(t, err, "disk2: ")
				require.NotContains(t, err.Error(), "disk1: ")
			}
			synctest.Wait()
		}
		time.Sleep(2 * retry)
		r.requireGet(1, 2)
		require.NoError(t, r.put(1, 3))
	})
}

// A hung member has a limited number of requests, and gets the newest of what it missed.
func TestSet_MemberHangs_Continues(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		release := r.members[1].Hang(disktest.Fault{})
		start := time.Now()
		for i := range records - 1 {
			for v := range 5 {
				require.NoError(t, r.put(i+1, uint64(v+1)))
			}
			r.requireGet(i+1, 5)
		}
		require.Zero(t, time.Since(start), "nothing waits for it")
		st := r.state(1)
		require.Equal(t, mirror.Up, st.State, "it did not fail")
		require.Equal(t, records-1, st.Behind)
		require.Equal(t, 24+24, st.Stats.InFlight)

		time.Sleep(time.Minute)
		release()
		require.Zero(t, r.state(1).Behind)
		for i := range records - 1 {
			require.Equal(t, 5, r.onDisk(1, i+1))
		}
		stats := r.Members()[1].Stats
		require.Equal(t, uint64(24+records-1), stats.Write.Count, "those that hung, and the newest of each record")
		require.Equal(t, uint64(24+2), stats.Read.Count, "those that hung, and one check at the start and one at the end")
	})
}

// A read began while one member was down and another just hung. It uses the first when that is back.
func TestSet_MemberIsBackWhileAnotherHangs_ReadReturns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 1))
		r.members[0].Inject(eio)
		r.requireGet(1, 1)
		synctest.Wait()
		require.Equal(t, mirror.Down, r.state(0).State)
		r.members[1].Hang(disktest.Fault{})
		start := time.Now()
		r.requireGet(1, 1)
		require.Equal(t, retry, time.Since(start))
	})
}

// A bad sector fails whenever it is read, and its member passes the check whenever it failed.
func TestSet_BadSectorWhileAnotherHangs_ReadIsNotRepeatedWithoutPause(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 1))
		sector := r.members[0].Inject(at(1, disktest.Fault{Op: blockdev.OpRead, Err: unix.EIO, Delay: time.Millisecond}))
		release := r.members[1].Hang(disktest.Fault{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.requireGet(1, 1)
		}()
		time.Sleep(10 * retry)
		require.InDelta(t, 10, sector.Fired(), 3)
		release()
		<-done
	})
}

// A disk with a bad sector is checked, and is back, before the slower others have answered. Their answers count.
func TestRead_BadSectorOnTheFastestDisk_WaitsForTheOthersOnce(t *testing.T) {
	const slow = 10 * time.Millisecond
	for _, disks := range []int{3, 5} {
		t.Run(fmt.Sprint(disks), func(t *testing.T) {
			bubble(t, disks, func(t *testing.T, r *rig) {
				require.NoError(t, r.put(1, 5))
				synctest.Wait()
				r.members[0].Inject(at(1, disktest.Fault{Op: blockdev.OpRead, Err: unix.EIO, Delay: time.Millisecond}))
				for _, m := range r.members[1:] {
					m.Inject(disktest.Fault{Delay: slow})
				}
				for range 3 {
					start := time.Now()
					r.requireGet(1, 5)
					require.Equal(t, slow, time.Since(start))
					require.Equal(t, mirror.Up, r.state(0).State)
				}
			})
		})
	}
}

func TestSet_MajorityHangs_WaitsUntilItReturns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		release := r.members[0].Hang(disktest.Fault{})
		r.members[1].Hang(disktest.Fault{})
		var done sync.WaitGroup
		var returned [2]bool
		done.Go(func() {
			require.NoError(t, r.put(1, 1))
			returned[0] = true
		})
		done.Go(func() {
			_, err := r.get(1, 3)
			require.NoError(t, err)
			returned[1] = true
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, [2]bool{}, returned)
		release()
		done.Wait()
		r.requireGet(1, 1)
	})
}

func TestSet_MajorityHangs_CloseReturns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[0].Hang(disktest.Fault{})
		r.members[1].Hang(disktest.Fault{})
		var done sync.WaitGroup
		done.Go(func() { require.ErrorIs(t, r.put(1, 1), blockdev.ErrClosed) })
		done.Go(func() {
			_, err := r.get(1, 1)
			require.ErrorIs(t, err, blockdev.ErrClosed)
		})
		synctest.Wait()
		start := time.Now()
		require.ErrorContains(t, r.Close(), "in flight for more than 5s")
		require.Equal(t, timeout, time.Since(start))
		done.Wait()
		require.ErrorIs(t, r.Close(), blockdev.ErrClosed)
	})
}

func TestClose_SlowMember_GetsItsCopies(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[2].Inject(disktest.Fault{Delay: 50 * time.Millisecond})
		for v := range 3 {
			require.NoError(t, r.put(1, uint64(v+1)))
		}
		require.NoError(t, r.Close())
		require.Equal(t, 3, r.onDisk(2, 1))
	})
}

func TestRead_SlowMember_IsNotWaitedFor(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[0].Inject(disktest.Fault{Delay: 50 * time.Millisecond})
		start := time.Now()
		for v := range 100 {
			require.NoError(t, r.put(1, uint64(v+1)))
			r.requireGet(1, v+1)
		}
		require.Zero(t, time.Since(start))
	})
}

func TestRead_DamagedCopies_AreNoVotes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		for i := range 4 {
			require.NoError(t, r.put(i+1, 5))
		}
		synctest.Wait()
		r.damage(0, 1)
		r.damage(1, 2)
		r.damage(2, 2)
		got, err := r.get(1, 5)
		require.NoError(t, err)
		require.Equal(t, []int{5, -1, 5, 5, 0}, got)
		require.NoError(t, r.put(2, 6))
		r.requireGet(2, 6)
	})
}

// A bad sector costs one copy of one record, and a hung disk with a damaged copy one record.
func TestRead_BadSectors_CostOneCopyEach(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		for i := range 4 {
			require.NoError(t, r.put(i+1, 5))
		}
		synctest.Wait()
		r.members[0].Inject(at(1, eio))
		r.damage(1, 2)
		got, err := r.get(1, 4)
		require.NoError(t, err)
		require.Equal(t, []int{5, 5, 5, 5}, got)
		require.Equal(t, mirror.Up, r.state(0).State)

		r.members[0].RemoveFaults()
		r.members[0].Hang(disktest.Fault{})
		start := time.Now()
		got, err = r.get(1, 4)
		require.NoError(t, err)
		require.Equal(t, []int{5, -1, 5, 5}, got)
		require.Equal(t, timeout, time.Since(start))
	})
}

// A record is damaged on one disk, and another disk is far away. Members in need are not waited for so long.
func TestRead_DamagedCopyAndSlowDisk_WaitsLongerThanForNeed(t *testing.T) {
	const slow, short, long = 100 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond
	bubbleWith(t, 3, func(r *rig) { r.opts.Patience, r.opts.RecordPatience = short, long }, func(t *testing.T, r *rig) {
		for record := 1; record <= 2; record++ {
			require.NoError(t, r.put(record, 5))
		}
		synctest.Wait()
		r.damage(0, 1)
		r.members[2].Inject(disktest.Fault{Op: blockdev.OpRead, Delay: slow})
		read := func(record int, need mirror.Positions, readable bool, copies int, took time.Duration) {
			t.Helper()
			start, got := time.Now(), 0
			p := blockdev.Alloc(stride)
			require.NoError(t, r.ReadCopies(p, int64(record)*stride, need, func(mirror.Copy) { got++ }))
			require.Equal(t, took, time.Since(start))
			require.Equal(t, copies, got)
			require.Equal(t, readable, !strings.HasPrefix(string(p), "no majority"))
		}
		read(1, 0, true, 3, slow)
		read(2, 0, true, 2, 0)
		read(2, r.All(), true, 2, short)
		r.members[2].RemoveFaults()
		r.members[2].Hang(disktest.Fault{Op: blockdev.OpRead})
		read(1, r.All(), false, 2, long)
	})
}

// Each damaged record is read alone, as a disk failed to read all of them. These reads wait for the disk that
// hangs at the same time.
func TestRead_DamagedCopiesWhileOneFailsAndOneHangs_WaitsTwice(t *testing.T) {
	const damaged = 64
	bubble(t, 5, func(t *testing.T, r *rig) {
		for i := range damaged {
			require.NoError(t, r.put(i+1, 5))
		}
		synctest.Wait()
		for i := range damaged {
			r.damage(1, i+1)
		}
		r.missing[0].Store(true)
		r.members[0].Inject(eio)
		r.members[4].Hang(disktest.Fault{})
		require.Equal(t, mirror.Up, r.state(0).State)
		r.requireGet(damaged+1, 0)
		require.Equal(t, mirror.Down, r.state(0).State)
		start := time.Now()
		got, err := r.get(0, damaged+2)
		require.NoError(t, err)
		require.Equal(t, -1, got[damaged])
		require.Equal(t, 0, got[damaged+1])
		require.Equal(t, 2*timeout, time.Since(start))
	})
}

func TestReadCopies_ShowsWhatEachMemberHas(t *testing.T) {
	bubble(t, 5, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 1))
		synctest.Wait()
		r.members[0].Inject(at(1, disktest.Fault{Op: blockdev.OpRead, Delay: time.Second}))
		r.members[0].Hang(at(1, disktest.Fault{Op: blockdev.OpWrite}))
		r.members[1].Hang(at(1, disktest.Fault{}))
		acked, err := r.WriteCount(encode(blockdev.Alloc(stride), stride, mirror.Version{Epoch: 1, Counter: 2}), stride)
		require.NoError(t, err)
		require.Equal(t, mirror.At(2)|mirror.At(3)|mirror.At(4), acked)
		r.damage(2, 1)

		newest := uint64(2)
		look := func(need mirror.Positions) (seen [5]int, took time.Duration) {
			start := time.Now()
			p := blockdev.Alloc(stride)
			require.NoError(t, r.ReadCopies(p, stride, need, func(c mirror.Copy) {
				require.Zero(t, c.Record)
				seen[c.Position] = int(c.Version.Counter)
				if c.Err != nil {
					seen[c.Position] = -1
				}
			}))
			require.Equal(t, int(newest), versionIn(p, stride))
			return seen, time.Since(start)
		}
		seen, took := look(0)
		require.Equal(t, [5]int{1, 0, -1, 2, 2}, seen, "the third vote is that of the slow one")
		require.Equal(t, time.Second, took)
		r.members[4].Inject(at(1, disktest.Fault{Delay: 2 * time.Second}))
		seen, took = look(mirror.At(4) | mirror.At(0))
		require.Equal(t, [5]int{1, 0, -1, 2, 2}, seen)
		require.Equal(t, 2*time.Second, took)
		_, took = look(mirror.At(1))
		require.Equal(t, timeout+time.Second, took, "no longer than the timeout for a hung one, once a majority answered")
		newest = 3
		require.NoError(t, r.put(1, newest))
		r.members[3].Inject(at(1, eio))
		seen, _ = look(mirror.At(3) | mirror.At(4))
		require.Equal(t, [5]int{1, 0, 3, -1, 3}, seen)
		for i := range 3 {
			r.members[i].Inject(at(1, eio))
		}
		failed := 0
		require.ErrorIs(t, r.ReadCopies(blockdev.Alloc(stride), stride, 0, func(c mirror.Copy) {
			if c.Block == nil {
				failed++
			}
		}), mirror.ErrNoMajority)
		require.Equal(t, 3, failed, "it says why no majority is left")
		time.Sleep(2 * time.Second) // the slow request returns
	})
}

func TestDrop_Copies_AreNotBegun(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		release := r.members[2].Hang(disktest.Fault{Op: blockdev.OpWrite})
		for i := range 2 {
			require.NoError(t, r.put(i+1, 1))
			require.NoError(t, r.put(i+1, 2))
		}
		synctest.Wait()
		require.Equal(t, mirror.At(2), r.Drop(stride, stride))
		release()
		synctest.Wait()
		require.Equal(t, 1, r.onDisk(2, 1), "the second was dropped")
		require.Equal(t, 2, r.onDisk(2, 2))
		require.Zero(t, r.Drop(0, records*stride))

		// A failed copy that was dropped is not repeated, and a write that cannot succeed returns.
		r.members[2].Hang(disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO})
		r.members[1].Hang(disktest.Fault{Op: blockdev.OpWrite})
		var done sync.WaitGroup
		for v := range 2 {
			done.Go(func() {
				err := r.put(1, uint64(v+3))
				if v == 1 {
					require.ErrorIs(t, err, mirror.ErrDropped)
				}
			})
			synctest.Wait()
		}
		require.Equal(t, mirror.At(1)|mirror.At(2), r.Drop(0, records*stride))
		r.members[1].RemoveFaults()
		r.members[2].RemoveFaults()
		done.Wait()
		time.Sleep(time.Minute)
		require.Equal(t, []int{4, 3, 1}, []int{r.onDisk(0, 1), r.onDisk(1, 1), r.onDisk(2, 1)})
	})
}

// TestDrop_CopyInFlight_UndoesTheNextWriter shows why the record is not given away before.
func TestDrop_CopyInFlight_UndoesTheNextWriter(t *testing.T) {
	bubble(t, 3, func(t *testing.T, a *rig) {
		b := newHost(t, a.disks)
		var err error
		b.Set, err = b.open()
		require.NoError(t, err)
		a.members[2].Hang(disktest.Fault{Op: blockdev.OpWrite})
		b.members[0].Hang(disktest.Fault{Op: blockdev.OpWrite})
		require.NoError(t, a.put(1, 5))
		require.Equal(t, mirror.At(2), a.Drop(0, records*stride))
		require.NoError(t, b.put(1, 6))
		b.requireGet(1, 6)
		a.members[2].RemoveFaults()
		synctest.Wait()
		release := b.members[1].Hang(disktest.Fault{Op: blockdev.OpRead})
		b.requireGet(1, 5)
		release()
		b.members[0].RemoveFaults()
		synctest.Wait()
		require.Zero(t, a.Drop(0, records*stride))
		b.requireGet(1, 6)
		require.NoError(t, b.Close())
	})
}

func TestWrite_BadSector_IsRetriedWithPauses(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		bad := r.members[1].Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO}))
		require.NoError(t, r.put(1, 1))
		require.NoError(t, r.put(2, 1))
		time.Sleep(10*retry + retry/2)
		require.Equal(t, 11, bad.Fired())
		require.Equal(t, mirror.Up, r.state(1).State)
		require.Equal(t, 1, r.state(1).Behind)
		require.Equal(t, 11, r.state(1).Failures)
		require.Equal(t, mirror.Version{Epoch: 1, Counter: 1}, r.Acked(stride, 0))
		require.Zero(t, r.Acked(stride, 1))
		require.Zero(t, r.Kept(stride, 1))
		bad.Release()
		time.Sleep(2 * retry)
		require.Equal(t, 1, r.onDisk(1, 1))
		require.Equal(t, mirror.Version{Epoch: 1, Counter: 1}, r.Acked(stride, 1))
		r.members[1].Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO, Times: 1}))
		require.NoError(t, r.put(1, 2))
		time.Sleep(retry / 2)
		require.Zero(t, r.Acked(stride, 1))
		require.Equal(t, mirror.Version{Epoch: 1, Counter: 1}, r.Kept(stride, 1), "IDENTITY needs what it had")
	})
}

func TestWrite_AfterFailure_IsNotDelayed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[1].Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO, Times: 1}))
		require.NoError(t, r.put(1, 1))
		require.Equal(t, mirror.Up, r.state(1).State)
		require.NoError(t, r.put(1, 2))
		synctest.Wait()
		require.Equal(t, 2, r.onDisk(1, 1))
	})
}

// A member that failed and acknowledged later is no failure.
func TestWrite_FailedCopySucceedsLater_Counts(t *testing.T) {
	bubble(t, 5, func(t *testing.T, r *rig) {
		write := disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO}
		r.members[1].Inject(write)
		write.Times = 1
		r.members[0].Inject(write)
		failing := r.members[2].Hang(write)
		r.members[3].Hang(disktest.Fault{Op: blockdev.OpWrite})
		r.members[4].Hang(disktest.Fault{Op: blockdev.OpWrite})
		var done sync.WaitGroup
		done.Go(func() { require.NoError(t, r.put(1, 1)) })
		time.Sleep(retry + retry/2)
		require.Equal(t, 1, r.onDisk(0, 1))
		failing()
		synctest.Wait()
		r.members[3].RemoveFaults()
		r.members[4].RemoveFaults()
		done.Wait()
	})
}

func TestZero_CopyInFlight_IsWaitedFor(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[2].Inject(disktest.Fault{Op: blockdev.OpWrite, Delay: 50 * time.Millisecond})
		require.NoError(t, r.put(1, 1))
		require.NoError(t, r.Zero(stride, stride))
		time.Sleep(time.Second)
		require.Zero(t, r.onDisk(2, 1))
	})
}

func TestWrite_NoNewVersion_IsRefused(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 2))
		require.NoError(t, r.put(1, 2), "a write that is repeated")
		require.ErrorIs(t, r.put(1, 1), mirror.ErrOlder)
		require.ErrorContains(t, r.Write(encode(blockdev.Alloc(stride), stride, mirror.Version{}), stride), "zero version")
		require.ErrorContains(t, r.Write(encode(blockdev.Alloc(stride), 0, mirror.Version{Epoch: 1}), stride), "no record")
		r.requireGet(1, 2)
	})
}

func TestZero_MemberMissing_ChangesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 1))
		r.members[2].Inject(eio)
		require.NoError(t, r.put(1, 2))
		synctest.Wait()
		require.ErrorContains(t, r.Zero(stride, stride), "disk2 is down")
		r.requireGet(1, 2)
		time.Sleep(2 * retry)
		require.NoError(t, r.Zero(stride, stride))
		r.requireGet(1, 0)
		require.NoError(t, r.put(1, 1), "versions begin again")
		synctest.Wait()
		r.members[1].Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO, Times: 1}))
		require.NoError(t, r.put(1, 2))
		synctest.Wait()
		require.NoError(t, r.Zero(stride, stride))
		time.Sleep(2 * retry)
		require.Zero(t, r.onDisk(1, 1), "the failed copy is not written again")
		r.members[0].Inject(disktest.Fault{Op: blockdev.OpZero, Err: unix.EIO})
		require.ErrorIs(t, r.Zero(stride, stride), unix.EIO)
	})
}

func TestFinish_CopyInFlight_IsWaitedForButNotLong(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.Equal(t, mirror.At(0)|mirror.At(1)|mirror.At(2), r.All())
		require.Zero(t, r.Finish(0, records*stride, time.Second))
		r.members[2].Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Delay: 50 * time.Millisecond, Times: 1}))
		require.NoError(t, r.put(1, 1))
		began := time.Now()
		require.Zero(t, r.Finish(2*stride, stride, time.Second), "of another record")
		require.Zero(t, r.Finish(stride, stride, time.Second))
		require.Equal(t, 50*time.Millisecond, time.Since(began))
		require.Equal(t, 1, r.onDisk(2, 1))
		hung := r.members[2].Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Hang: true}))
		require.NoError(t, r.put(1, 2))
		require.NoError(t, r.put(1, 3))
		began = time.Now()
		require.Equal(t, mirror.At(2), r.Finish(stride, stride, time.Second))
		require.Equal(t, time.Second, time.Since(began))
		hung.Release()
		synctest.Wait()
		require.Equal(t, 2, r.onDisk(2, 1), "the copy that waited was dropped")
		require.Zero(t, r.Finish(stride, stride, 0))
	})
}

func TestFinish_CopyFailed_IsRetriedUnlessMemberIsDown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[2].Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO, Times: 1}))
		require.NoError(t, r.put(1, 1))
		require.Zero(t, r.Finish(stride, stride, 2*retry))
		require.Equal(t, 1, r.onDisk(2, 1))
		r.members[2].Inject(eio)
		require.NoError(t, r.put(2, 1))
		require.Equal(t, mirror.Down, r.state(2).State)
		began := time.Now()
		require.Zero(t, r.Finish(2*stride, stride, time.Minute))
		require.Zero(t, time.Since(began))
		time.Sleep(2 * retry)
		require.Equal(t, mirror.Up, r.state(2).State)
		require.Zero(t, r.onDisk(2, 2), "it was dropped")
	})
}
