package main

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
)

// lockMemory keeps what bakeryd uses of memory from being swapped out, for a renewal of the lease must not wait for a swap device.
// Only pages that are used are locked: Go reserves far more, and still gives back what it has no more use for. Where bakeryd
// has not the right to it goes on without, after a warning.
func lockMemory(log *slog.Logger) {
	if err := mayLockMemory(); err != nil {
		log.Warn("memory is not locked: on a host that swaps, renewals may be late", "err", err)
		return
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		log.Warn("memory is not locked: on a host that swaps, renewals may be late", "err", fmt.Errorf("mlockall: %w", err))
	}
}

// mayLockMemory returns why not all memory, now and in the future, may be locked. To try it with a limit would be worse
// than not to: from the day when the limit is met, the process would get no more memory at all.
func mayLockMemory() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	if limit.Cur == unix.RLIM_INFINITY {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_IPC_LOCK) == 0 {
		return fmt.Errorf("%d bytes may be locked at most: set LimitMEMLOCK=infinity in the unit (ulimit -l unlimited), or give it CAP_IPC_LOCK",
			limit.Cur)
	}
	return nil
}
