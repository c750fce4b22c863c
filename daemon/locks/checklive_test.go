package locks

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
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
			f := blockdev.NewFaulty(c.Disk.Open(), blockdev.FaultyOptions{Seed: uint64(id)})
			d := c.host(id, through(f))
			t.Cleanup(f.RemoveFaults)
			f.Inject(blockdev.Fault{Op: blockdev.OpWrite, Flicker: 3, Delay: 200 * time.Microsecond})
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
							time.Sleep(3 * SettleAfter / 2)
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

// TestCheckDuringRemoval: check finds nothing at any step of a removal, even while another host
// waits.
func TestCheckDuringRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		a, b := c.host(1), c.host(2)
		h := acquire(t, a, Request{Name: "x"})
		next := start(t, b, Request{Name: "x"})
		e := h.Lock().Entry
		removed := make(chan error, 1)
		go func() {
			removed <- h.lk.do(func() error {
				clean := func() { assert.Empty(t, c.check()) }
				forever := func() bool { return true }
				action := h.lk.m.Remove()
				for action.Kind != bakery.Done {
					clean()
					var err error
					if action.Kind == bakery.ClearDirectory {
						free := layout.Entry{Lock: e.Lock, Creation: action.Slot.Creation}
						if err := a.guarded(t.Context(), "clear", func(guard *Lock) error {
							if err := guard.intend(free); err != nil {
								return err
							}
							clean()
							if err := a.writeEntry(a.disk.Dev, free); err != nil {
								return err
							}
							clean()
							return guard.intended()
						}); err != nil {
							return err
						}
						action = h.lk.m.DirectoryCleared()
						continue
					}
					if action, err = h.lk.execute(action, time.Now(), forever); err != nil {
						return err
					}
				}
				assert.Equal(t, bakery.Removed, action.Outcome)
				return errSuperseded
			})
		}()
		require.ErrorIs(t, <-removed, errSuperseded)
		again := got(t, next) // through a new entry
		require.NotEqual(t, e, again.Lock().Entry)
		require.Greater(t, again.Token(), h.Token())
		require.NoError(t, again.Release())
		require.Empty(t, c.check())
	})
}
