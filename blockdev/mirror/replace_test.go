package mirror_test

import (
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

var hangsWrites, hangsReads = disktest.Fault{Op: blockdev.OpWrite}, disktest.Fault{Op: blockdev.OpRead}

// writing is a write under way.
type writing struct {
	acked    mirror.Positions
	err      error
	returned atomic.Bool
}

// write begins to write a version of some records.
func (r *rig) write(record, count int, counter uint64) *writing {
	w, p := &writing{}, blockdev.Alloc(count*stride)
	for i := range count {
		encode(p[i*stride:][:stride], int64((record+i)*stride), mirror.Version{Epoch: 1, Counter: counter})
	}
	go func() {
		w.acked, w.err = r.WriteCount(p, int64(record*stride))
		w.returned.Store(true)
	}()
	synctest.Wait()
	return w
}

// done reports whether a write has returned once everything waits.
func (w *writing) done() bool {
	synctest.Wait()
	return w.returned.Load()
}

func TestReplace_AcknowledgementBefore_CountsForNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		first, last := r.members[1].Hang(hangsWrites), r.members[2].Hang(hangsWrites)
		w := r.write(1, 1, 1)
		require.Equal(t, mirror.Version{Epoch: 1, Counter: 1}, r.Acked(stride, 0))
		r.vacate(0)
		require.Zero(t, r.Acked(stride, 0))
		require.Zero(t, r.Kept(stride, 0))
		first()
		require.False(t, w.done())
		last()
		require.True(t, w.done())
		require.NoError(t, w.err)
		require.Equal(t, mirror.At(1)|mirror.At(2), w.acked)
	})
}

func TestReplace_AcknowledgementAfterIt_CountsForNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		old, last := r.members[0].Hang(hangsWrites), r.members[2].Hang(hangsWrites)
		w := r.write(1, 1, 1)
		r.vacate(0)
		require.Equal(t, mirror.At(0)|mirror.At(2), r.Drop(stride, stride), "that on the disk before may land, too")
		old()
		synctest.Wait()
		require.Equal(t, mirror.At(2), r.Drop(stride, stride))
		require.False(t, w.done())
		require.Equal(t, 1, r.onDisk(0, 1), "it landed")
		require.Zero(t, r.Acked(stride, 0))
		last()
		require.True(t, w.done())
		require.NoError(t, w.err)
		require.Equal(t, mirror.At(1)|mirror.At(2), w.acked)
	})
}

// Another host may use the disk until it knows of the vacant position, which it does when that is filled.
func TestReplace_PositionIsVacant_CopyMayLand(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		lands := r.members[0].Hang(hangsWrites)
		require.NoError(t, r.put(1, 1))
		synctest.Wait()
		for range 2 {
			r.vacate(0)
			start := time.Now()
			require.Equal(t, mirror.At(0), r.Finish(0, records*stride, time.Second))
			require.Equal(t, time.Second, time.Since(start))
			require.Zero(t, r.Drop(2*stride, stride), "it is of another record")
		}
		r.renew(0, nil)
		require.Zero(t, r.Drop(0, records*stride))
		r.vacate(0)
		require.Zero(t, r.Drop(0, records*stride))
		lands()
	})
}

func TestReplace_NoMajorityIsLeft_WriteFails(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[0].Hang(hangsWrites)
		r.members[1].Inject(at(1, disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO}))
		w := r.write(1, 1, 1)
		r.vacate(0)
		require.True(t, w.done())
		require.ErrorIs(t, w.err, mirror.ErrNoMajority)
		require.ErrorContains(t, w.err, "none: it replaced disk0")
	})
}

// The caller may not have found what one member lacks.
func TestReplace_WriteUnderWay_IsWrittenToTheNewDisk(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		first, last := r.members[1].Hang(hangsWrites), r.members[2].Hang(hangsWrites)
		w := r.write(1, 1, 1)
		r.vacate(0)
		require.Equal(t, 1, r.state(0).Behind)
		r.renew(0, nil)
		require.Equal(t, mirror.Up, r.state(0).State)
		require.Equal(t, "new disk", r.state(0).Name)
		require.Equal(t, 1, r.onDisk(0, 1))
		require.False(t, w.done())
		first()
		require.True(t, w.done())
		require.NoError(t, w.err)
		require.Equal(t, mirror.At(1), w.acked, "position 0 is not that of one disk during the write")
		last()
		require.Zero(t, r.state(0).Behind)
	})
}

func TestReplace_CopyWasDropped_IsNotWrittenToTheNewDisk(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[2].Hang(hangsWrites)
		require.NoError(t, r.put(1, 1))
		require.Equal(t, mirror.At(2), r.Drop(stride, stride))
		var done sync.WaitGroup
		done.Go(func() { require.Zero(t, r.Finish(stride, stride, time.Hour)) })
		synctest.Wait()
		start, opens := time.Now(), make(chan struct{})
		r.Replace(2, mirror.Member{Name: "late", ID: [16]byte{9}, Open: func() (blockdev.Device, error) {
			<-opens
			return nil, errVacant
		}})
		done.Wait()
		require.Zero(t, time.Since(start), "it was not waited for")
		close(opens)
		r.renew(2, nil)
		require.Equal(t, mirror.Up, r.state(2).State)
		require.Equal(t, 0, r.onDisk(2, 1))
	})
}

func TestReplace_CopiesAreReady_DiskBeforeDoesNotTakeThem(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		old := r.members[2]
		release := old.Hang(hangsWrites)
		for i := range 100 {
			require.NoError(t, r.put(i+1, 1))
		}
		synctest.Wait()
		r.vacate(2)
		release()
		require.Equal(t, 100, r.state(2).Behind)
		require.EqualValues(t, 24, old.Stats().Write.Count)
	})
}

func TestReplace_ManyRecords_PositionIsNotThatOfTheDiskBefore(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		second := r.members[1].Hang(at(2, hangsWrites))
		r.members[2].Hang(hangsWrites)
		w := r.write(1, 2, 1) // record 1 is on 0 and 1
		r.renew(0, nil)
		second()
		require.True(t, w.done()) // so is record 2
		require.NoError(t, w.err)
		require.Equal(t, mirror.At(1), w.acked)
	})
}

// The disk before has as many requests as it may have, and they return when the new disk is in use.
func TestReplace_DiskHangs_NewDiskIsNotAffected(t *testing.T) {
	for _, fault := range []disktest.Fault{{}, eio} {
		bubble(t, 3, func(t *testing.T, r *rig) {
			old, start := r.members[1], time.Now()
			release := old.Hang(fault)
			for i := range records - 1 {
				require.NoError(t, r.put(i+1, 1))
				r.requireGet(i+1, 1)
			}
			require.Equal(t, 24+24, r.state(1).Stats.InFlight)
			r.renew(1, nil)
			require.Equal(t, mirror.Up, r.state(1).State)
			require.Zero(t, r.Finish(0, records*stride, time.Hour))
			require.Zero(t, time.Since(start))
			for i := range records - 1 {
				require.Equal(t, 1, r.onDisk(1, i+1))
			}

			own := r.members[1].Hang(hangsWrites)
			require.NoError(t, r.put(1, 2))
			require.NoError(t, r.put(1, 3))
			release()
			st := r.state(1)
			require.Equal(t, mirror.Up, st.State)
			require.NoError(t, st.Err)
			require.Zero(t, st.Failures)
			require.Equal(t, 1, st.Behind)
			require.Equal(t, 1, st.Stats.InFlight, "FIFO")
			require.Zero(t, old.Stats().InFlight)
			require.ErrorIs(t, old.Read(blockdev.Alloc(stride), 0), blockdev.ErrClosed)
			own()
			synctest.Wait()
			require.Equal(t, 3, r.onDisk(1, 1))
		})
	}
}

func TestReplace_FailedCopyWaits_RetryIsNotThatOfTheNewDisk(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		bad := at(1, disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO})
		r.members[1].Inject(bad)
		require.NoError(t, r.put(1, 1))
		time.Sleep(retry / 2)
		r.always = []disktest.Fault{bad}
		r.renew(1, nil)
		require.Equal(t, 1, r.state(1).Failures)
		time.Sleep(retry * 3 / 4) // the retry of the disk before is due
		require.Equal(t, 1, r.state(1).Failures)
		time.Sleep(retry / 2)
		require.Equal(t, 2, r.state(1).Failures)
	})
}

func TestReplace_ReadUnderWay_IsRepeated(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 1))
		synctest.Wait()
		hangs := at(1, hangsReads)
		old, first, last := r.members[0].Hang(hangs), r.members[1].Hang(hangs), r.members[2].Hang(hangs)
		var done sync.WaitGroup
		var returned atomic.Bool
		read := func() {
			done.Go(func() {
				returned.Store(false)
				var seen mirror.Positions
				require.NoError(t, r.ReadCopies(blockdev.Alloc(stride), stride, 0, func(c mirror.Copy) {
					if c.Err == nil {
						seen |= mirror.At(c.Position)
					}
				}))
				require.Equal(t, mirror.At(1)|mirror.At(2), seen)
				returned.Store(true)
			})
			synctest.Wait()
		}
		read()
		old() // it answers
		synctest.Wait()
		r.vacate(0)
		first()
		synctest.Wait()
		require.False(t, returned.Load(), "the answer of the disk before does not count")
		last()
		done.Wait()

		r.members[1].Hang(hangs)
		read()
		require.False(t, returned.Load())
		r.renew(1, nil)
		done.Wait()
	})
}

func TestReplace_ZeroUnderWay_Fails(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		release := r.members[0].Hang(disktest.Fault{Op: blockdev.OpZero, Err: unix.EIO})
		done := make(chan error)
		go func() { done <- r.Zero(stride, stride) }()
		synctest.Wait()
		r.renew(0, nil)
		require.ErrorContains(t, <-done, "a member disk was replaced")
		release()
		require.Zero(t, r.state(0).Failures)
	})
}

func TestReplace_DiskIsDown_IsNotOpenedAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		var opened atomic.Int32
		checking := make(chan struct{})
		member := mirror.Member{Name: "missing", Open: func() (blockdev.Device, error) {
			opened.Add(1)
			return nil, unix.ENOENT
		}}
		r.Replace(1, member)
		time.Sleep(2*retry + retry/2)
		require.EqualValues(t, 3, opened.Load())
		require.ErrorIs(t, r.state(1).Err, unix.ENOENT)

		// A disk that was replaced while it was opened is only closed.
		late := disktest.NewFaulty(r.disks[1].Open(), disktest.FaultyOptions{})
		r.Replace(1, mirror.Member{Name: "late", Open: func() (blockdev.Device, error) {
			<-checking
			return late, nil
		}})
		require.Equal(t, mirror.Checking, r.state(1).State)
		r.renew(1, nil)
		require.Equal(t, mirror.Up, r.state(1).State)
		close(checking)
		synctest.Wait()
		require.ErrorIs(t, late.Read(blockdev.Alloc(stride), 0), blockdev.ErrClosed)
		require.Equal(t, "new disk", r.Members()[1].Name)
		time.Sleep(time.Minute)
		require.Equal(t, mirror.Up, r.state(1).State)
		require.EqualValues(t, 3, opened.Load())
	})
}

func TestReplace_SameDisk_IsDownUntilItsRequestsReturned(t *testing.T) {
	for _, failed := range []bool{false, true} {
		bubble(t, 3, func(t *testing.T, r *rig) { testSameDisk(t, r, failed) })
	}
}

// testSameDisk replaces a disk by itself while a request is in flight there, perhaps after another failed.
func testSameDisk(t *testing.T, r *rig, failed bool) {
	disk := func(name string, position int, minor uint32) mirror.Member {
		m := r.memberAt(position, name)
		return mirror.Member{Name: name, Open: func() (blockdev.Device, error) {
			dev, err := m.Open()
			return numbered{dev, minor}, err
		}}
	}
	r.Replace(0, disk("a", 0, 1_000_000))
	r.Replace(1, disk("b", 1, 1_000_001))
	require.Equal(t, mirror.Up, r.state(1).State)
	hung := r.members[1]
	release := hung.Hang(hangsWrites)
	require.NoError(t, r.put(1, 1))
	synctest.Wait()
	if failed {
		hung.Inject(at(0, eio))
		r.Recheck(1, unix.EIO)
		require.Equal(t, mirror.Down, r.state(1).State)
	}

	r.Replace(1, disk("c", 1, 1_000_000))
	require.ErrorIs(t, r.state(1).Err, mirror.ErrSameDisk)
	require.ErrorContains(t, r.state(1).Err, "a and c are device 7:1000000")
	r.Replace(1, disk("d", 1, 1_000_001))
	require.ErrorIs(t, r.state(1).Err, mirror.ErrSameDisk)
	require.ErrorContains(t, r.state(1).Err, "d is device 7:1000001, the replaced b, whose requests have not returned")
	time.Sleep(time.Minute)
	require.Equal(t, mirror.Down, r.state(1).State)
	release()
	time.Sleep(2 * retry)
	require.Equal(t, mirror.Up, r.state(1).State)
	require.NoError(t, r.put(1, 2))
	synctest.Wait()
	require.Equal(t, 2, r.onDisk(1, 1))
}

func TestReplace_StateIsTheSame_ChangedIsCalled(t *testing.T) {
	var calls atomic.Int32
	bubbleWith(t, 3, func(r *rig) {
		r.opts.Changed = func() { calls.Add(1) }
	}, func(t *testing.T, r *rig) {
		synctest.Wait()
		calls.Store(0)
		r.vacate(2)
		require.ErrorIs(t, r.state(2).Err, errVacant)
		require.EqualValues(t, 2, calls.Swap(0), "it is checked, and down")
		r.renew(2, nil)
		require.Equal(t, time.Now(), r.state(2).Since)
		require.EqualValues(t, 2, calls.Swap(0), "it is checked, and up")
	})
}

func TestClose_ReplacedDiskIsSlow_WaitsForIt(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[0].Inject(disktest.Fault{Op: blockdev.OpWrite, Delay: time.Second})
		require.NoError(t, r.put(1, 1))
		r.vacate(0)
		start := time.Now()
		require.NoError(t, r.Close())
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, 1, r.onDisk(0, 1))
		r.renew(0, nil)
		require.Equal(t, "none", r.state(0).Name, "the set is closed")
	})
}

func TestClose_ReplacedDiskHangs_ReturnsAfterTimeout(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		old := r.members[0]
		release := old.Hang(hangsWrites)
		require.NoError(t, r.put(1, 1))
		synctest.Wait()
		r.renew(0, nil)
		start := time.Now()
		require.ErrorContains(t, r.Close(), "in flight for more than 5s")
		require.Equal(t, timeout, time.Since(start))
		release()
		synctest.Wait()
		require.Zero(t, old.Stats().InFlight)
	})
}
