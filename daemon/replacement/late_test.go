package replacement

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
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
			cfg := s.config(0, nil)
			fifth := s.config(0, func(op blockdev.Op) error {
				if op == blockdev.OpRead && slow(n.Add(1)) {
					time.Sleep(time.Millisecond)
				}
				return nil
			})
			others := cfg.Disks.Open
			cfg.Disks.Open = func(path string, readOnly bool) (lockspace.Disk, error) {
				if path == "disk5" {
					return fifth.Disks.Open(path, readOnly)
				}
				return others(path, readOnly)
			}
			done, err := Replace(t.Context(), cfg, Order{Old: "2", New: "disk6", Progress: func(message string) { t.Log(message) }})
			require.NoError(t, err)
			require.Empty(t, done.Warning)
			s.uses(done.Lockspace.Members, a)
		})
	}
}
