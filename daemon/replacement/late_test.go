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
