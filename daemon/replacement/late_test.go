package replacement

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestReplace_ReadHangsUntilTheLeaseIsOver_NewDiskIsNotWritten: another process has replaced the disk by the same one
// meanwhile. The records that were read are older than those that hosts have written there (COPIED).
func TestReplace_ReadHangsUntilTheLeaseIsOver_NewDiskIsNotWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 1)
		a, b := s.host(1), s.host(2)
		var copying, over atomic.Bool
		var late atomic.Int64
		returns := make(chan struct{})
		cfg := s.config(0, func(op blockdev.Op) error {
			if op == blockdev.OpRead && copying.Load() {
				<-returns
			}
			return nil
		})
		fresh := s.config(0, func(op blockdev.Op) error {
			if op != blockdev.OpRead && over.Load() {
				late.Add(1)
			}
			return nil
		})
		others := cfg.Disks.Open
		cfg.Disks.Open = func(path string, readOnly bool) (lockspace.Disk, error) {
			if path == "disk4" && !readOnly {
				return fresh.Disks.Open(path, readOnly)
			}
			return others(path, readOnly)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := Replace(t.Context(), cfg, Order{Old: "2", New: "disk4", Progress: func(message string) {
				if strings.HasPrefix(message, "copying") {
					copying.Store(true)
				}
			}})
			ended <- err
		}()
		for !copying.Load() {
			time.Sleep(s.several.SB.Lease)
		}
		time.Sleep(5 * s.several.SB.Lease)
		_, err := s.replace("2", "disk4", nil)
		require.NoError(t, err)
		in := &visits{shelf: s}
		in.visit(a, b)
		over.Store(true)
		close(returns)
		require.ErrorIs(t, <-ended, ErrIncomplete)
		synctest.Wait()
		require.Zero(t, late.Load())
	})
}

// TestReplace_OldDiskHangs_IsReplaced: a lost disk often neither answers nor fails.
func TestReplace_OldDiskHangs_IsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 1)
		a := s.host(1)
		x := s.keep(a, "x")
		returns := make(chan struct{})
		defer close(returns)
		cfg := s.config(0, nil)
		others, hung := cfg.Disks.Open, s.config(0, func(blockdev.Op) error { <-returns; return errFailed }).Disks.Open
		cfg.Disks.Open = func(path string, readOnly bool) (lockspace.Disk, error) {
			if path == "disk2" {
				return hung(path, readOnly)
			}
			return others(path, readOnly)
		}
		done, err := Replace(t.Context(), cfg, Order{Old: "2", New: "disk4", Progress: func(message string) { t.Log(message) }})
		require.NoError(t, err)
		require.Empty(t, done.Warning)
		s.uses(done.Lockspace.Members, a)
		s.fail("disk1")
		s.has(a, "x", x)
	})
}

// TestReplace_JoinerIsDead_IsNotWaitedFor: its last claim is on one disk of five, over an earlier one, and that disk shows
// it in some reads or in none.
func TestReplace_JoinerIsDead_IsNotWaitedFor(t *testing.T) {
	for name, slow := range map[string]func(n int64) bool{"none": func(int64) bool { return true }, "some": func(n int64) bool { return n%2 == 0 }} {
		subtest(t, name, func(t *testing.T) {
			s := newShelf(t, 5, 1)
			sb := s.several.SB
			for claim, on := range [][]*disktest.Memory{s.several.Disks[:4], s.several.Disks[4:5]} {
				buf := blockdev.Alloc(sb.Geometry.Stride)
				require.NoError(t, sb.Space().EncodeHost(buf, layout.HostRecord{ID: 5, Incarnation: uint64(7 + claim), Generation: uint32(1 + claim),
					Sequence: uint64(8 + claim), State: layout.StateJoining, Epoch: 1}))
				for i, disk := range on {
					layout.PlaceCopy(buf, 4*claim+i+1)
					require.NoError(t, disk.Open().Write(buf, sb.Geometry.Host(5)))
				}
			}
			a := s.host(1)
			var n atomic.Int64
			fifth, err := s.config(0, func(op blockdev.Op) error {
				if op == blockdev.OpRead && slow(n.Add(1)) {
					time.Sleep(time.Millisecond)
				}
				return nil
			}).Disks.Open("disk5", false)
			require.NoError(t, err)
			cfg := s.view(map[string]blockdev.Device{"disk5": fifth})
			done, err := Replace(t.Context(), cfg, Order{Old: "2", New: "disk6", Progress: func(message string) { t.Log(message) }})
			require.NoError(t, err)
			require.Empty(t, done.Warning)
			s.uses(done.Lockspace.Members, a)
		})
	}
}

// view returns the config of a host that has disks of its own at some paths.
func (s *shelf) view(own map[string]blockdev.Device) daemon.Config {
	cfg := s.config(0, nil)
	others := cfg.Disks.Open
	cfg.Disks.Open = func(path string, readOnly bool) (lockspace.Disk, error) {
		if dev := own[path]; dev != nil && !readOnly {
			return unlocked{dev}, nil
		}
		return others(path, readOnly)
	}
	return cfg
}

// ends returns the state that the record of the last host shows, which has replaced a disk.
func (s *shelf) ends() layout.HostState {
	sb := s.several.SB
	buf := blockdev.Alloc(sb.Geometry.Stride)
	require.NoError(s.t, s.several.Disks[0].Open().Read(buf, sb.Geometry.Host(2)))
	rec, err := sb.Space().DecodeHost(buf, 2)
	require.NoError(s.t, err)
	return rec.State
}

// TestReplace_AnotherDiskHangs_ListIsNotAwaited: three of five have it. At the end it is, because the next holder of the
// directory's lock may write the next list there.
func TestReplace_AnotherDiskHangs_ListIsNotAwaited(t *testing.T) {
	for name, answers := range map[string]bool{"later": true, "never": false} {
		subtest(t, name, func(t *testing.T) {
			s := newShelf(t, 5, 1)
			a := s.host(1)
			disk := disktest.NewFaulty(s.disks["disk5"].Open(), disktest.FaultyOptions{})
			defer disk.RemoveFaults() // or the process could not end
			hangs := disk.Inject(disktest.Fault{Op: blockdev.OpWrite, To: s.several.SB.Geometry.Host(1), Hang: true})
			copied := false
			done, err := Replace(t.Context(), s.view(map[string]blockdev.Device{"disk5": disk}), Order{Old: "2", New: "disk6", Progress: func(message string) {
				if copied = copied || strings.HasPrefix(message, "copying"); answers && strings.HasPrefix(message, "waiting for the list") {
					hangs.Release()
				}
			}})
			require.NoError(t, err)
			require.True(t, copied)
			s.uses(done.Lockspace.Members, a)
			if answers {
				require.Empty(t, done.Warning)
				require.Equal(t, layout.StateLeft, s.ends())
				return
			}
			require.Contains(t, done.Warning, "write the list of disks to disk 5 (disk5): a write is in flight")
			require.Equal(t, layout.StateLive, s.ends())
		})
	}
}

// TestReplace_ReadFails_LeavesTheLockspace: no write is in flight, so other hosts need not wait as after a failure.
func TestReplace_ReadFails_LeavesTheLockspace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 1)
		s.host(1)
		own := map[string]blockdev.Device{}
		var faulty []*disktest.Faulty
		for _, path := range []string{"disk1", "disk3"} {
			disk := disktest.NewFaulty(s.disks[path].Open(), disktest.FaultyOptions{})
			own[path], faulty = disk, append(faulty, disk)
		}
		_, err := Replace(t.Context(), s.view(own), Order{Old: "2", New: "disk4", Progress: func(message string) {
			for _, disk := range faulty {
				if strings.HasPrefix(message, "copying") {
					disk.Inject(disktest.Fault{Op: blockdev.OpRead, Times: 1, Err: errFailed})
				}
			}
		}})
		require.ErrorIs(t, err, ErrIncomplete)
		require.ErrorIs(t, err, errFailed)
		require.Equal(t, layout.StateLeft, s.ends())
	})
}

// TestReplace_OldDiskHangs_LeavesTheLockspace: when the position is filled, no host uses the old disk (VACANT of package
// mirror), so its requests matter no more.
func TestReplace_OldDiskHangs_LeavesTheLockspace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 1)
		a := s.host(1)
		disk := disktest.NewFaulty(s.disks["disk2"].Open(), disktest.FaultyOptions{})
		defer disk.RemoveFaults() // or the process could not end
		disk.Inject(disktest.Fault{Op: blockdev.OpWrite, Hang: true})
		done, err := Replace(t.Context(), s.view(map[string]blockdev.Device{"disk2": disk}), Order{Old: "2", New: "disk4", Progress: func(string) {}})
		require.NoError(t, err)
		s.uses(done.Lockspace.Members, a)
		require.Equal(t, layout.StateLeft, s.ends())
	})
}
