package main

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
)

// lockMemory locks bakeryd's memory, because a renewal of the lease must not wait for a swap
// device. It locks only pages in use: Go reserves far more, and still returns unused pages. Without
// the right to lock memory it logs a warning.
func lockMemory(log *slog.Logger) {
	if err := mayLockMemory(); err != nil {
		log.Warn("memory not locked: renewals may be late on a host that swaps", "err", err)
		return
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		log.Warn("memory not locked: renewals may be late on a host that swaps", "err", fmt.Errorf("mlockall: %w", err))
	}
}

// mayLockMemory returns why this process may not lock all memory, now and in the future; nil if it
// may. mlockall under a limit would be worse than none: allocations fail when the limit is reached.
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
		return fmt.Errorf("the limit of locked memory is %d bytes: set LimitMEMLOCK=infinity in the unit (ulimit -l unlimited), or give it CAP_IPC_LOCK",
			limit.Cur)
	}
	return nil
}
