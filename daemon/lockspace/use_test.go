package lockspace

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/layout"
)

// slow is a disk of which a read waits.
type slow struct {
	Disk
	begun   chan<- struct{}
	returns <-chan struct{}
}

func (s slow) Read(p []byte, off int64) error {
	s.begun <- struct{}{}
	<-s.returns
	return s.Disk.Read(p, off)
}

// TestUse_OldDiskIsBeingOpened_IsNotLockedAsTheNewOne: its check returns after two changes of the list.
func TestUse_OldDiskIsBeingOpened_IsNotLockedAsTheNewOne(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		var mu sync.Mutex
		locked := map[string]layout.UUID{}
		begun, returns := make(chan struct{}, 10), make(chan struct{})
		hangs := false
		s.remove("b")
		set := s.set("a b c", DiskOptions{
			Open: func(path string, readOnly bool) (Disk, error) {
				disk, err := openPath(path, readOnly)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && hangs && !readOnly && path == s.path("b") {
					hangs = false
					return slow{disk, begun, returns}, nil
				}
				return disk, err
			},
			Lock: func(position int, disk Disk, sb layout.Superblock) error {
				mu.Lock()
				defer mu.Unlock()
				locked[disk.Info().Path] = sb.Members.Disks[position]
				return nil
			},
		})
		defer set.Close()
		mu.Lock()
		hangs = true
		mu.Unlock()
		s.put("b", s.at(2))
		<-begun
		s.list(2, 0)
		set.Use(s.sb.Members, "")
		s.list(2, 4)
		s.put("d", s.at(2))
		set.Use(s.sb.Members, s.path("d"))
		synctest.Wait()
		close(returns)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, layout.UUID{2}, locked[s.path("b")])
		require.Equal(t, layout.UUID{4}, locked[s.path("d")])
	})
}

// TestCheck_ReturnsAfterClose_RegistersNoKey: the disk hung while it was opened again, and the next term may have
// registered its key there.
func TestCheck_ReturnsAfterClose_RegistersNoKey(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		var hangs atomic.Bool
		var checked [3]atomic.Int32
		begun, returns := make(chan struct{}, 10), make(chan struct{})
		s.remove("b")
		set := s.set("a b c", DiskOptions{
			Open: func(path string, readOnly bool) (Disk, error) {
				disk, err := openPath(path, readOnly)
				if err == nil && hangs.Load() && !readOnly && path == s.path("b") {
					return slow{disk, begun, returns}, nil
				}
				return disk, err
			},
			Check: func(position int, _ blockdev.Device) error {
				checked[position].Add(1)
				return nil
			},
		})
		hangs.Store(true)
		s.put("b", s.at(2))
		<-begun
		require.ErrorIs(t, set.Close(), mirror.ErrInFlight)
		close(returns)
		_ = set.AwaitRequests()
		require.Equal(t, int32(1), checked[0].Load())
		require.Zero(t, checked[1].Load())
	})
}
