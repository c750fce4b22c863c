package mirror_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/test/disktest"
)

const lookEvery = 3 * time.Second

// looked runs a test on a set that looks at its members by their check, and counts the looks.
func looked(t *testing.T, test func(t *testing.T, r *rig, looks []atomic.Int32)) {
	looks := make([]atomic.Int32, 3)
	bubbleWith(t, 3, func(r *rig) {
		r.opts.Look = func(i int, dev blockdev.Device) error {
			looks[i].Add(1)
			return r.opts.Check(i, dev)
		}
	}, func(t *testing.T, r *rig) { test(t, r, looks) })
}

// TestSet_IdleMemberIsWiped_LookFindsIt (IDENTITY): no request needs the disk.
func TestSet_IdleMemberIsWiped_LookFindsIt(t *testing.T) {
	looked(t, func(t *testing.T, r *rig, looks []atomic.Int32) {
		require.NoError(t, r.put(1, 5))
		time.Sleep(lookEvery)
		require.Equal(t, mirror.Up, r.state(1).State)
		require.NoError(t, r.disks[1].Open().Zero(0, records*stride))
		time.Sleep(lookEvery)
		require.Equal(t, mirror.Down, r.state(1).State)
		require.ErrorContains(t, r.state(1).Err, "it is not disk 1")
		require.Zero(t, r.state(0).Failures)
		require.NoError(t, r.put(1, 6))
		require.Zero(t, r.onDisk(1, 1))

		before := looks[1].Load() // it is down
		time.Sleep(4 * lookEvery)
		synctest.Wait()
		require.Equal(t, before, looks[1].Load())
		require.EqualValues(t, 6, looks[0].Load())
		r.label(1)
		time.Sleep(retry)
		require.Equal(t, mirror.Up, r.state(1).State)
		time.Sleep(lookEvery)
		synctest.Wait()
		require.Greater(t, looks[1].Load(), before)
	})
}

// TestSet_LookHangs_DelaysNothing: it is the only one of that member. The set is closed without it.
func TestSet_LookHangs_DelaysNothing(t *testing.T) {
	looked(t, func(t *testing.T, r *rig, looks []atomic.Int32) {
		release := r.member(2).Hang(at(0, disktest.Fault{}))
		time.Sleep(10 * lookEvery)
		synctest.Wait()
		require.EqualValues(t, 10, looks[0].Load())
		require.EqualValues(t, 1, looks[2].Load())
		require.Equal(t, mirror.Up, r.state(2).State)

		began := time.Now()
		require.NoError(t, r.put(1, 5))
		r.requireGet(1, 5)
		require.ErrorIs(t, r.Close(), mirror.ErrInFlight)
		require.LessOrEqual(t, time.Since(began), timeout/10)
		release()
		require.NoError(t, r.AwaitRequests())
	})
}

// TestSet_LookReturnsLate_CountsForNothing: the member was checked, or replaced, since the look began.
func TestSet_LookReturnsLate_CountsForNothing(t *testing.T) {
	for name, change := range map[string]func(r *rig){
		"checked": func(r *rig) {
			r.member(2).Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Times: 1, Err: unix.EIO}))
			require.NoError(r.t, r.put(1, 5))
			require.Equal(r.t, mirror.Up, r.state(2).State)
			require.Equal(r.t, 1, r.state(2).Failures)
		},
		"replaced": func(r *rig) { r.renew(2, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			looked(t, func(t *testing.T, r *rig, looks []atomic.Int32) {
				hung := r.member(2).Inject(at(0, disktest.Fault{Hang: true, Times: 1, Err: errors.New("late")}))
				time.Sleep(lookEvery)
				<-hung.Hit()
				change(r)
				before := r.state(2)
				require.Equal(t, mirror.Up, before.State)
				hung.Release()
				require.Equal(t, before.Failures, r.state(2).Failures)
				require.Equal(t, before.Since, r.state(2).Since)
				at := looks[2].Load()
				time.Sleep(lookEvery)
				synctest.Wait()
				require.Equal(t, at+1, looks[2].Load()) // the looks continue
			})
		})
	}
}

// TestRead_DiskIsLostAfterItsAnswer_IsRepeated: member 0 answers with zeroes, and is found to be blank while the read
// waits. Member 1 lacks the last write.
func TestRead_DiskIsLostAfterItsAnswer_IsRepeated(t *testing.T) {
	for name, fault := range map[string]disktest.Fault{"another hangs": {Op: blockdev.OpRead, Hang: true}, "another is back": {Op: blockdev.OpRead, Err: unix.EIO, Times: 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, r *rig) {
				require.NoError(t, r.put(1, 1))
				synctest.Wait()
				late := r.members[1].Hang(disktest.Fault{Op: blockdev.OpWrite})
				require.NoError(t, r.put(1, 2))
				synctest.Wait()
				newest := r.members[2].Hang(disktest.Fault{Op: blockdev.OpRead})
				other := r.members[1].Inject(at(1, fault))
				superblock := r.members[1].Hang(at(0, disktest.Fault{Op: blockdev.OpRead}))
				require.NoError(t, r.disks[0].Open().Write(blockdev.Alloc(records*stride), 0))
				var done sync.WaitGroup
				returned := begin(&done, func() { r.requireGet(1, 2) })
				r.Recheck(0, errors.New("it is blank"))
				require.Equal(t, mirror.Down, r.state(0).State)
				other.Release()
				superblock()
				synctest.Wait()
				require.False(t, returned.Load())
				newest()
				done.Wait()
				late()
			})
		})
	}
}
