package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime is the time on CLOCK_BOOTTIME, which no clock step changes and
// which goes on while the host is suspended.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("daemon: CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
