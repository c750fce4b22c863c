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
	"github.com/bakeryd/bakeryd/test/lockspacetest"
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

// TestReplace_JoinerIsDead_IsNotWaitedFor: its record stands still, whichever disk shows it first.
func TestReplace_JoinerIsDead_IsNotWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 1)
		sb := s.several.SB
		put := &lockspacetest.Several{T: t, Disks: s.several.Disks[:3], SB: sb}
		put.Put(sb.Geometry.Host(5), func(buf []byte) error {
			return sb.Space().EncodeHost(buf, layout.HostRecord{ID: 5, Incarnation: 7, Generation: 1, Sequence: 9, State: layout.StateJoining, Epoch: 1})
		})
		a := s.host(1)
		open := map[string]func(path string, readOnly bool) (lockspace.Disk, error){}
		for i, path := range []string{"disk1", "disk3"} {
			var n atomic.Int64
			open[path] = s.config(0, func(op blockdev.Op) error {
				if op == blockdev.OpRead && int(n.Add(1))%2 == i {
					time.Sleep(time.Millisecond)
				}
				return nil
			}).Disks.Open
		}
		cfg := s.config(0, nil)
		others := cfg.Disks.Open
		cfg.Disks.Open = func(path string, readOnly bool) (lockspace.Disk, error) {
			if f := open[path]; f != nil {
				return f(path, readOnly)
			}
			return others(path, readOnly)
		}
		done, err := Replace(t.Context(), cfg, Order{Old: "2", New: "disk4", Progress: func(message string) { t.Log(message) }})
		require.NoError(t, err)
		require.Empty(t, done.Warning)
		s.uses(done.Lockspace.Members, a)
	})
}
