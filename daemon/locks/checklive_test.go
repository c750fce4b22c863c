package locks

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestCheckOfALiveLockspace: three hosts continuously take, share and create locks, on a disk whose
// sectors are torn while they are written.
func TestCheckOfALiveLockspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 8, 16)
		c.lasting(5 * time.Second)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for id := 1; id <= 3; id++ {
			f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{Seed: uint64(id)})
			d := c.host(id, through(f))
			t.Cleanup(f.RemoveFaults)
			f.Inject(disktest.Fault{Op: blockdev.OpWrite, Flicker: 3, Delay: 200 * time.Microsecond})
			for worker := range 3 {
				wg.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						h, err := d.Acquire(t.Context(), Request{Name: fmt.Sprint("lock", (n+worker)%4), Mode: layout.Mode(n % 2)})
						if !assertNoError(t, err) {
							return
						}
						if n%20 == 0 {
							time.Sleep(3 * driver.SettleAfter / 2)
						}
						if !assertNoError(t, h.Release()) {
							return
						}
					}
				})
			}
		}
		for range 15 {
			done, err := check.Check(t.Context(), c.Disk.OpenReadOnly(), check.Options{})
			require.NoError(t, err)
			require.Empty(t, done.Findings)
		}
		close(stop)
		wg.Wait()
	})
}

// written calls after for each write from an offset on.
type written struct {
	blockdev.Device
	from  int64
	after func()
}

func (d *written) Write(p []byte, off int64) error {
	err := d.Device.Write(p, off)
	if off >= d.from {
		d.after()
	}
	return err
}

// TestCheckDuringRemoval: check finds nothing after any write of a removal, even if another host
// requests the lock meanwhile.
func TestCheckDuringRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		b := c.host(2)
		var next chan result
		disk, writes := &written{c.Disk.Open(), c.Geo.Entry(1), func() {}}, 0
		a := c.host(1, through(disk))
		h := acquire(t, a, Request{Name: "x"})
		entry := h.Lock().Entry
		require.NoError(t, h.Release())
		disk.after = func() {
			writes++
			if next == nil && c.Slot(1, 1).Phase >= layout.Waiting {
				next = asking(t.Context(), b, Request{Name: "x"})
				time.Sleep(time.Millisecond)
			}
			assert.Empty(t, c.check())
		}
		require.NoError(t, a.Remove(t.Context(), "x", false))
		require.Greater(t, writes, 3, "the mark, the intent, the entry, the end")
		again := got(t, next) // through a new entry
		require.NotEqual(t, entry, again.Lock().Entry)
		require.NoError(t, again.Release())
		disk.after = func() {}
	})
}
