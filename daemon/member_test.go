package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestLossWhileTheStateDirHangs: the system's own disk may hang as the lockspace's does. That
// delays the end of no holder.
func TestLossWhileTheStateDirHangs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		hangs := fmt.Sprintf("%s.%d", d.ids.LeftPath("1"), os.Getpid())
		require.NoError(t, unix.Mkfifo(hangs, 0o600))
		t.Cleanup(func() {
			r, err := os.Open(hangs)
			require.NoError(t, err)
			t.Cleanup(func() { r.Close() })
		})
		f.Inject(disktest.Fault{Op: blockdev.OpRead, Err: unix.EIO})
		within(t, "the end of the lease", func() { <-d.Lost() })
		within(t, "by any request", func() { require.True(t, d.mem.Moments().Lost) })
	})
}

// TestWatchOnce: every event wakes all waiting locks. One of them requests a read of the host
// table, even while a read hangs.
func TestWatchOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		time.Sleep(time.Millisecond)
		release := f.Hang(disktest.Fault{Op: blockdev.OpRead})
		defer release()
		const every = 50 * time.Millisecond
		d.mem.Watch(0)
		time.Sleep(every)
		events := 0
		for began := time.Now(); time.Since(began) < every/2; time.Sleep(100 * time.Microsecond) {
			_, changed := d.mem.Known()
			d.mem.Watch(every)
			select {
			case <-changed:
				events++
			default:
			}
		}
		require.LessOrEqual(t, events, 3, "one, and what else the lease does")
	})
}

// TestFailedClaimTellsOfNoLease: a joining host has no lease that could run out.
func TestFailedClaimTellsOfNoLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, Times: 1, Err: errors.New("no path is left")})
		var log bytes.Buffer
		d := c.host(1, through(f), func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		require.NoError(t, d.Close(t.Context()))
		require.Contains(t, log.String(), "no path is left")
		require.NotContains(t, log.String(), "lease_left")
	})
}

func TestOneIDOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.host(1)
		_, err := Join(t.Context(), c.config(1))
		require.ErrorIs(t, err, lease.ErrInUse)
		require.ErrorContains(t, err, "db1")
		_, err = Join(t.Context(), c.config(9))
		require.ErrorIs(t, err, api.ErrInvalid)
		require.Equal(t, 2, c.host(0).HostID(), "auto takes the next")
	})
}
