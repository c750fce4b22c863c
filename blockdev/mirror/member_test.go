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

func TestOpen_MissingMember_JoinsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.missing[1].Store(true)
		start := time.Now()
		var err error
		r.Set, err = r.open()
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		require.Equal(t, "disk0, disk1, disk2", r.Info().Path)
		require.NoError(t, r.put(1, 1))
		time.Sleep(time.Minute)
		st := r.state(1)
		require.Equal(t, mirror.Down, st.State)
		require.Equal(t, start, st.Since)
		require.ErrorIs(t, st.Err, unix.ENOENT)
		r.missing[1].Store(false)
		time.Sleep(retry)
		require.Equal(t, mirror.Up, r.state(1).State)
		require.Equal(t, 1, r.onDisk(1, 1))
		require.NoError(t, r.Close())
	})
}

func TestOpen_NoMajority_IsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.missing[1].Store(true)
		r.disks[2] = disktest.NewMemory(records*stride, stride, stride)
		_, err := r.open()
		require.ErrorIs(t, err, mirror.ErrNoMajority)
		require.ErrorContains(t, err, "disk1: "+unix.ENOENT.Error())
		require.ErrorContains(t, err, "disk2: it is not disk 2 of the set")

		r.label(2)
		hang := make(chan struct{})
		check := r.opts.Check
		r.opts.Check = func(i int, dev blockdev.Device) error {
			if i == 2 {
				<-hang
			}
			return check(i, dev)
		}
		start := time.Now()
		_, err = r.open()
		require.ErrorContains(t, err, "disk2: is still being opened")
		require.LessOrEqual(t, time.Since(start), 2*timeout)

		r.missing[1].Store(false)
		r.Set, err = r.open()
		require.NoError(t, err)
		require.NoError(t, r.put(1, 1))
		close(hang)
		synctest.Wait()
		require.NoError(t, r.Close())

		r.disks = r.disks[:2]
		_, err = r.open()
		require.ErrorContains(t, err, "2 member disks: a set has 3 or 5")
	})
}

// A member that hangs delays neither the opening of the set nor the end of a reader by Options.Timeout.
func TestOpen_MemberHangs_MajoritySuffices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, readOnly := range []bool{false, true} {
			r := newRig(t, 3)
			r.opts.ReadOnly = readOnly
			hang, check := make(chan struct{}), r.opts.Check
			r.opts.Check = func(i int, dev blockdev.Device) error {
				if i == 2 {
					<-hang
				}
				return check(i, dev)
			}
			start := time.Now()
			var err error
			r.Set, err = r.open()
			require.NoError(t, err)
			require.Equal(t, timeout/10, time.Since(start))
			require.Equal(t, mirror.Checking, r.Members()[2].State)
			start = time.Now()
			require.ErrorIs(t, r.Close(), mirror.ErrInFlight)
			if readOnly {
				require.Equal(t, timeout/10, time.Since(start))
			} else {
				require.Equal(t, timeout, time.Since(start))
			}
			close(hang)
			synctest.Wait()
		}
	})
}

// numbered is a device with the numbers of a block device.
type numbered struct {
	blockdev.Device
	minor uint32
}

func (d numbered) Info() blockdev.Info {
	info := d.Device.Info()
	info.Major, info.Minor = 7, d.minor
	return info
}

func TestOpen_SameDiskTwice_IsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		var list []mirror.Member
		for i, name := range []string{"a", "b", "c"} {
			list = append(list, mirror.Member{Name: name, Open: func() (blockdev.Device, error) {
				return numbered{r.disks[i].Open(), 1_000_000 + uint32(i%2)}, nil
			}})
		}
		_, err := mirror.Open(list, r.opts)
		require.ErrorIs(t, err, mirror.ErrSameDisk)
		require.Regexp(t, "(a and c|c and a) are device 7:1000000; name each disk once", err.Error())
	})
}

func TestOpen_UnfitDisk_IsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.disks[0] = disktest.NewMemory((records-1)*stride, stride, stride)
		r.disks[1] = disktest.NewMemory(2*records*stride, 2*stride, 2*stride)
		_, err := r.open()
		require.ErrorContains(t, err, "disk0: the disk has 65024 bytes in blocks of 512, the set needs 65536 in blocks of 512")
		require.ErrorContains(t, err, "disk1: the disk has 131072 bytes in blocks of 1024, the set needs 65536")
	})
}

// A blank disk in the place of a member is never written, and never votes.
func TestSet_BlankDiskReturns_IsNotUsed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[0].Hang(disktest.Fault{Op: blockdev.OpWrite})
		require.NoError(t, r.put(1, 1)) // on 1 and 2
		r.members[0].RemoveFaults()
		r.members[2].Inject(disktest.Fault{Err: unix.ENODEV})
		r.disks[2] = disktest.NewMemory(records*stride, stride, stride)
		require.NoError(t, r.put(2, 1))
		time.Sleep(time.Minute)
		require.ErrorContains(t, r.state(2).Err, "not disk 2 of the set")
		require.Equal(t, 1, r.state(2).Behind)
		require.Equal(t, 0, r.onDisk(2, 2))

		r.members[1].Hang(disktest.Fault{})
		var done sync.WaitGroup
		returned := false
		done.Go(func() {
			r.requireGet(1, 1)
			returned = true
		})
		synctest.Wait()
		require.False(t, returned, "the blank disk is no vote")
		r.members[1].RemoveFaults()
		done.Wait()
		r.label(2)
		time.Sleep(retry)
		require.Equal(t, mirror.Up, r.state(2).State)
		require.Equal(t, 1, r.onDisk(2, 2))
	})
}

// A read that began before a member failed counts for nothing, even if it succeeds: the disk may be
// another one by now.
func TestRead_BegunBeforeFailure_IsRepeated(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 1))
		synctest.Wait()
		r.members[0].Hang(disktest.Fault{})
		slow := r.members[2].Inject(at(1, disktest.Fault{Op: blockdev.OpRead, Hang: true, Times: 1}))
		var done sync.WaitGroup
		returned := false
		done.Go(func() {
			r.requireGet(1, 1)
			returned = true
		})
		synctest.Wait()
		check := r.members[2].Hang(at(0, disktest.Fault{}))
		r.Recheck(2, unix.EIO)
		slow.Release()
		synctest.Wait()
		require.False(t, returned)
		require.Equal(t, mirror.Checking, r.Members()[2].State)
		check()
		done.Wait()
		require.Equal(t, mirror.Up, r.state(2).State)
	})
}

// A read that waits for a check fails with it.
func TestRead_MemberGoesDown_ReturnsError(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[1].Inject(disktest.Fault{Op: blockdev.OpRead, Err: unix.EIO})
		r.requireGet(1, 0)
		require.Equal(t, mirror.Down, r.state(1).State)

		check := r.members[2].Inject(at(0, disktest.Fault{Hang: true, Err: unix.ENODEV}))
		r.Recheck(2, unix.EIO)
		var done sync.WaitGroup
		done.Go(func() {
			_, err := r.get(1, 1)
			require.ErrorIs(t, err, mirror.ErrNoMajority)
			require.ErrorIs(t, err, unix.ENODEV)
		})
		synctest.Wait()
		check.Release()
		done.Wait()
	})
}

func TestSet_FailureDuringCheck_ChecksAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		checks := r.members[2].Inject(at(0, disktest.Fault{Hang: true}))
		r.Recheck(2, unix.EIO)
		synctest.Wait()
		r.Recheck(2, unix.EIO)
		checks.Release()
		require.Equal(t, mirror.Up, r.state(2).State)
		require.Equal(t, uint64(3), r.Members()[2].Stats.Read.Count)
	})
}

func TestRecheck_CheckFails_MemberIsNotUsed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(1, 1))
		synctest.Wait()
		p := blockdev.Alloc(stride)
		require.NoError(t, r.disks[0].Open().Write(p, 0))
		r.Recheck(0, unix.ESTALE)
		require.ErrorContains(t, r.state(0).Err, "not disk 0")
		require.NoError(t, r.put(1, 2))
		require.Equal(t, 1, r.onDisk(0, 1))
		r.requireGet(1, 2)
	})
}

func TestSet_StateOfMemberChanges_ChangedIsCalledAfterIt(t *testing.T) {
	var calls atomic.Int32
	bubbleWith(t, 3, func(r *rig) {
		r.opts.Changed = func() { calls.Add(1) }
	}, func(t *testing.T, r *rig) {
		synctest.Wait()
		require.EqualValues(t, 3, calls.Swap(0), "each member came up")

		r.missing[1].Store(true)
		r.member(1).Inject(eio)
		_, err := r.get(1, 1)
		require.NoError(t, err)
		require.Equal(t, mirror.Down, r.state(1).State)
		require.EqualValues(t, 2, calls.Swap(0), "checking, down")
		time.Sleep(10 * retry)
		require.Equal(t, mirror.Down, r.state(1).State)
		require.Zero(t, calls.Load(), "its state is the same after each check")

		r.missing[1].Store(false)
		time.Sleep(retry)
		require.Equal(t, mirror.Up, r.state(1).State)
		require.EqualValues(t, 1, calls.Swap(0))
	})
}

func TestSet_Changed_MayReadTheStates(t *testing.T) {
	seen := make(chan mirror.State, 100)
	var set atomic.Pointer[mirror.Set]
	bubbleWith(t, 3, func(r *rig) {
		r.opts.Changed = func() {
			if s := set.Load(); s != nil {
				seen <- s.Members()[2].State
			}
		}
	}, func(t *testing.T, r *rig) {
		synctest.Wait()
		set.Store(r.Set)
		r.missing[2].Store(true)
		r.member(2).Inject(eio)
		_, err := r.get(1, 1)
		require.NoError(t, err)
		synctest.Wait()
		var last mirror.State
		for len(seen) > 0 {
			last = <-seen
		}
		require.Equal(t, mirror.Down, last)
	})
}
