package watchdog

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// descriptor is a card by its file descriptor.
type descriptor int

func openCard(path string) (card, error) {
	for {
		// A child that inherited it could keep it open, and therefore armed, after the end of
		// this process.
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return descriptor(fd), err
		}
	}
}

func (d descriptor) support() (*unix.WatchdogInfo, error) { return unix.IoctlGetWatchdogInfo(int(d)) }

func (d descriptor) setTimeout(seconds int) error {
	return unix.IoctlSetPointerInt(int(d), unix.WDIOC_SETTIMEOUT, seconds)
}

func (d descriptor) timeout() (int, error) {
	n, err := unix.IoctlGetUint32(int(d), unix.WDIOC_GETTIMEOUT)
	return int(int32(n)), err
}

func (d descriptor) keepAlive() error { return unix.IoctlWatchdogKeepalive(int(d)) }

func (d descriptor) stopAndStart() error {
	if err := unix.IoctlSetPointerInt(int(d), unix.WDIOC_SETOPTIONS, unix.WDIOS_DISABLECARD); err != nil {
		return err
	}
	return unix.IoctlSetPointerInt(int(d), unix.WDIOC_SETOPTIONS, unix.WDIOS_ENABLECARD)
}

func (d descriptor) write(b byte) error {
	_, err := unix.Write(int(d), []byte{b})
	return err
}

func (d descriptor) close() error { return unix.Close(int(d)) }

// notKnown reports whether a driver, or the kernel, does not know a request.
func notKnown(err error) bool {
	return errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}

func explainOpen(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %w: end the program that feeds it (systemd with RuntimeWatchdogSec, watchdog, sbd, another bakeryd), or give bakeryd a watchdog of its own, such as softdog's", ErrBusy, err)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: %w: load the driver of the host's watchdog, or modprobe softdog", ErrNotWatchdog, err)
	}
	return err
}
