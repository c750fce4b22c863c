//go:build vm

package watchdog_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/watchdog"
)

// The lab runs this in a virtual machine, because a mistake resets it.
var device = flag.String("watchdog", "", "a watchdog of the kernel, to be armed and disarmed")

var timeout = flag.Duration("watchdog-timeout", 2*time.Second, "time-out that the watchdog is fed within")

func TestDevice(t *testing.T) {
	require.NotEmpty(t, *device, "test/vm gives one")
	contract(t, func(want time.Duration) (watchdog.Device, error) {
		w, err := watchdog.Open(*device, want)
		if err != nil {
			return nil, err
		}
		return w, nil
	})
}

// TestFeed feeds the watchdog for three time-outs, prints that, and continues until it is killed.
// Before that it disarms it in the way that leaves magic behind, as systemd does.
func TestFeed(t *testing.T) {
	fd, err := unix.Open(*device, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.WDIOC_SETOPTIONS, unix.WDIOS_DISABLECARD))
	_, err = unix.Write(fd, []byte{'V'})
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))

	w, err := watchdog.Open(*device, *timeout)
	require.NoError(t, err)
	began := time.Now()
	for said := false; ; time.Sleep(w.Timeout() / 10) {
		require.NoError(t, w.Feed())
		if !said && time.Since(began) > 3*w.Timeout() {
			fmt.Println("fed", w.Driver(), "for three times", w.Timeout())
			said = true
		}
	}
}

// TestNoWayOut needs a driver that cannot be disarmed.
func TestNoWayOut(t *testing.T) {
	w, err := watchdog.Open(*device, 2*time.Second)
	require.NoError(t, err)
	require.ErrorIs(t, w.Disarm(), watchdog.ErrStillArmed)
}
