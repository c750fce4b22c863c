package mirror_test

import (
	"errors"
	"fmt"
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

// own is the record by which a host finds that a disk lost what it wrote.
const own = 9

// checkOwn makes the check of a rig read that record, too.
func checkOwn(r *rig) {
	check := r.opts.Check
	r.opts.Check = func(i int, dev blockdev.Device) error {
		if err := check(i, dev); err != nil || r.Set == nil {
			return err
		}
		p := blockdev.Alloc(stride)
		if err := dev.Read(p, own*stride); err != nil {
			return err
		}
		if v, err := (codec{}).Version(p, own*stride, i); err == nil && v.Less(r.Kept(own*stride, i)) {
			return errors.New("it lost writes")
		}
		return nil
	}
}

// contents returns what is on a disk.
func (r *rig) contents(i int) []byte {
	p := blockdev.Alloc(records * stride)
	require.NoError(r.t, r.disks[i].Open().Read(p, 0))
	return p
}

// begin calls f in a goroutine, and returns whether it returned.
func begin(done *sync.WaitGroup, f func()) *atomic.Bool {
	returned := new(atomic.Bool)
	done.Go(func() {
		f()
		returned.Store(true)
	})
	synctest.Wait()
	return returned
}

// forgetful are the ways in which a disk forgets while its requests hang: it becomes blank, or has the contents
// of an earlier moment.
var forgetful = map[string]func(old []byte) []byte{
	"blank": func([]byte) []byte { return blockdev.Alloc(records * stride) },
	"old":   func(old []byte) []byte { return old },
}

// TestHung_DiskForgot_ItsAcknowledgementIsNone: member 2 lacks the write, and is read next. The silence ends with
// this acknowledgement, or with an error.
func TestHung_DiskForgot_ItsAcknowledgementIsNone(t *testing.T) {
	for name, forgets := range forgetful {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, an error %v", name, fails), func(t *testing.T) {
				bubbleWith(t, 3, checkOwn, func(t *testing.T, r *rig) {
					old := r.contents(0)
					require.NoError(t, r.put(own, 1))
					synctest.Wait()
					late := r.members[2].Hang(disktest.Fault{Op: blockdev.OpWrite})
					release := r.members[0].Hang(disktest.Fault{})
					failing := r.members[0].Inject(at(3, disktest.Fault{Hang: true, Err: unix.EIO}))
					var done sync.WaitGroup
					returned := begin(&done, func() { require.NoError(t, r.put(1, 1)) })
					if fails {
						done.Go(func() { r.requireGet(3, 0) })
					}
					time.Sleep(2 * hung)
					require.NoError(t, r.disks[0].Open().Write(forgets(old), 0))
					failing.Release()
					synctest.Wait()
					release()
					require.Equal(t, mirror.Down, r.state(0).State)
					require.Equal(t, 1, r.onDisk(0, 1), "the write itself succeeded")
					require.False(t, returned.Load())
					late()
					done.Wait()
					r.requireGet(1, 1)
				})
			})
		}
	}
}

// TestHung_DiskForgot_ItsAnswerIsNone: two reads hang. The one that returns first was begun at the end of the
// silence.
func TestHung_DiskForgot_ItsAnswerIsNone(t *testing.T) {
	for name, forgets := range forgetful {
		t.Run(name, func(t *testing.T) {
			bubbleWith(t, 3, checkOwn, func(t *testing.T, r *rig) {
				old := r.contents(0)
				require.NoError(t, r.put(own, 1))
				synctest.Wait()
				late := r.members[2].Hang(disktest.Fault{Op: blockdev.OpWrite})
				require.NoError(t, r.put(1, 1))
				synctest.Wait()
				release := r.members[0].Hang(disktest.Fault{})
				reads := r.members[1].Hang(disktest.Fault{Op: blockdev.OpRead})
				var done sync.WaitGroup
				returned := []*atomic.Bool{begin(&done, func() { r.requireGet(1, 1) })}
				time.Sleep(2 * hung)
				last := r.members[0].Hang(disktest.Fault{})
				returned = append(returned, begin(&done, func() { r.requireGet(1, 1) }))
				require.NoError(t, r.disks[0].Open().Write(forgets(old), 0))
				last()
				require.Equal(t, mirror.Checking, r.state(0).State)
				release()
				require.Equal(t, mirror.Down, r.state(0).State)
				for _, returned := range returned {
					require.False(t, returned.Load())
				}
				reads()
				done.Wait()
				late()
			})
		})
	}
}

// TestHung_DiskHasItsContents_CountsAfterOneCheck: two members hang, and their check takes its time. Nothing is
// written or read again, and nothing waits for Options.Retry.
func TestHung_DiskHasItsContents_CountsAfterOneCheck(t *testing.T) {
	const slow = 100 * time.Millisecond
	bubbleWith(t, 3, checkOwn, func(t *testing.T, r *rig) {
		require.NoError(t, r.put(own, 1))
		require.NoError(t, r.put(1, 1))
		synctest.Wait()
		var before [2]mirror.Status
		var releases []func()
		for i := range before {
			before[i] = r.state(i)
			r.members[i].Inject(at(0, disktest.Fault{Delay: slow}))
			releases = append(releases, r.members[i].Hang(at(1, disktest.Fault{})), r.members[i].Hang(at(2, disktest.Fault{})))
		}
		start := time.Now()
		var done sync.WaitGroup
		done.Go(func() { require.NoError(t, r.put(1, 2)) })
		done.Go(func() { require.NoError(t, r.put(2, 1)) })
		done.Go(func() {
			got, err := r.get(1, 1)
			require.NoError(t, err)
			require.Contains(t, []int{1, 2}, got[0])
		})
		time.Sleep(2 * hung)
		for _, release := range releases {
			release()
		}
		done.Wait()
		require.Equal(t, 2*hung+slow, time.Since(start))
		for i, before := range before {
			now := r.state(i)
			require.Equal(t, mirror.Up, now.State)
			require.ErrorContains(t, now.Err, "it gave no answer for 2s")
			require.Zero(t, now.Failures)
			require.Zero(t, now.Behind)
			require.Equal(t, before.Stats.Write.Count+2, now.Stats.Write.Count)
			require.Equal(t, before.Stats.Read.Count+1+2, now.Stats.Read.Count)
		}
		r.requireGet(1, 2)
	})
}

// TestHung_AnswersInTime_NoCheck: each request hangs for less than Options.Hung, and one for longer while others
// are answered.
func TestHung_AnswersInTime_NoCheck(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		checks := r.members[0].Inject(at(0, disktest.Fault{}))
		release := r.members[0].Hang(at(3, disktest.Fault{}))
		require.NoError(t, r.put(3, 1))
		r.members[0].Inject(at(1, disktest.Fault{Delay: hung * 3 / 4}))
		for v := range uint64(5) {
			require.NoError(t, r.put(1, v+1))
			time.Sleep(hung * 3 / 4)
			synctest.Wait()
		}
		release()
		require.Equal(t, mirror.Up, r.state(0).State)
		require.Zero(t, checks.Fired())
		require.Equal(t, 1, r.onDisk(0, 3))
		time.Sleep(time.Hour) // no request is in flight
		require.NoError(t, r.put(3, 2))
		require.Equal(t, mirror.Up, r.state(0).State)
		require.Zero(t, checks.Fired())
	})
}

// TestHung_DiskIsSlow_TakesPart: each request to two members takes longer than Options.Hung, also those of their
// checks.
func TestHung_DiskIsSlow_TakesPart(t *testing.T) {
	const slow = hung * 3 / 2
	bubble(t, 3, func(t *testing.T, r *rig) {
		for i := range 2 {
			r.members[i].Inject(disktest.Fault{Delay: slow})
		}
		for v := 1; v <= 10; v++ {
			start := time.Now()
			require.NoError(t, r.put(1, uint64(v)))
			require.LessOrEqual(t, time.Since(start), 3*slow)
			start = time.Now()
			r.requireGet(1, v)
			require.LessOrEqual(t, time.Since(start), 3*slow)
		}
		time.Sleep(2 * slow)
		for i := range 2 {
			require.Equal(t, mirror.Up, r.state(i).State)
			require.Zero(t, r.state(i).Failures)
		}
	})
}

// TestHung_WhileItsCheckHangs_WriteIsInFlight (FIFO): for Drop and Finish, and for the write after it.
func TestHung_WhileItsCheckHangs_WriteIsInFlight(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		check := r.members[0].Hang(at(0, disktest.Fault{}))
		release := r.members[0].Hang(at(1, disktest.Fault{}))
		require.NoError(t, r.put(1, 1))
		require.NoError(t, r.put(1, 2))
		time.Sleep(2 * hung)
		release()
		require.Equal(t, mirror.Checking, r.state(0).State)
		require.Equal(t, 1, r.onDisk(0, 1))
		require.Zero(t, r.Acked(stride, 0))
		require.Equal(t, mirror.At(0), r.Drop(2*stride, stride)|r.Drop(stride, stride))
		require.NoError(t, r.put(1, 3))
		var done sync.WaitGroup
		returned := begin(&done, func() { require.Zero(t, r.Finish(stride, stride, time.Hour)) })
		require.False(t, returned.Load())
		check()
		done.Wait()
		require.Equal(t, 3, r.onDisk(0, 1))
		require.Equal(t, mirror.Version{Epoch: 1, Counter: 3}, r.Acked(stride, 0))
	})
}

// TestHung_CheckIsSlow_SilenceBeginsAgain: a request hangs for longer, one until the check is under way and one
// until it has passed.
func TestHung_CheckIsSlow_SilenceBeginsAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.members[0].Inject(at(0, disktest.Fault{Delay: 2 * hung}))
		var releases []func()
		for record := range 3 {
			releases = append(releases, r.members[0].Hang(at(1+record, disktest.Fault{})))
			require.NoError(t, r.put(1+record, 1))
		}
		time.Sleep(2 * hung)
		checked := r.state(0).Stats.Read.Count
		releases[0]()
		time.Sleep(2*hung - 1)
		releases[1]()
		time.Sleep(time.Nanosecond)
		require.Equal(t, mirror.Checking, r.state(0).State, "the check began before this answer")
		time.Sleep(2 * hung)
		require.Equal(t, mirror.Up, r.state(0).State)
		require.Equal(t, 1, r.state(0).Behind)
		releases[2]()
		require.Equal(t, mirror.Up, r.state(0).State)
		require.Zero(t, r.state(0).Behind)
		require.Equal(t, checked+2, r.state(0).Stats.Read.Count)
	})
}

// TestHung_SetIsClosed_WaitsNoLonger: and so if the disk is replaced.
func TestHung_SetIsClosed_WaitsNoLonger(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		release := r.members[2].Hang(at(2, disktest.Fault{}))
		require.NoError(t, r.put(2, 1))
		time.Sleep(2 * hung)
		r.renew(2, nil)
		release()
		require.Equal(t, mirror.Up, r.state(2).State)
		hang := func(i int) {
			r.members[i].Hang(at(0, disktest.Fault{}))
			release := r.members[i].Hang(at(1, disktest.Fault{}))
			require.NoError(t, r.put(1, uint64(i+1)))
			time.Sleep(2 * hung)
			release()
			require.Equal(t, mirror.Checking, r.state(i).State)
		}
		hang(0)
		r.renew(0, map[int][]byte{1: encode(blockdev.Alloc(stride), stride, mirror.Version{Epoch: 1, Counter: 1})})
		require.Equal(t, mirror.Up, r.state(0).State)
		require.Zero(t, r.Drop(stride, stride))
		hang(1)
		start := time.Now()
		require.ErrorIs(t, r.Close(), mirror.ErrInFlight)
		require.Equal(t, timeout, time.Since(start))
		for _, m := range r.opened {
			m.RemoveFaults()
		}
		require.NoError(t, r.AwaitRequests())
	})
}
