package watchdog

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Driver is a watchdog as the kernel shows it. Its fields show the effect on the host.
type Driver struct {
	KnowsMagic, SetsTimeout, KeepsAlive bool
	NoWayOut, NoStop                    bool
	Step, Seconds                       int   // time-outs are multiples of Step, up to 1000
	SupportErr, TimeoutErr, FeedErr     error // of each request

	IsOpen, Armed, Magic bool // Magic outlives a close, as in the kernel
	Fed                  int
}

func NewDriver() *Driver {
	return &Driver{KnowsMagic: true, SetsTimeout: true, KeepsAlive: true, Step: 1, Seconds: 60}
}

// Open opens it for a path that is a character device.
func (d *Driver) Open(want time.Duration) (*Watchdog, error) {
	return open(os.DevNull, want, func(string) (card, error) {
		if d.IsOpen {
			return nil, unix.EBUSY
		}
		d.IsOpen, d.Armed = true, true
		return opened{d}, nil
	})
}

type opened struct{ *Driver }

func (d opened) support() (*unix.WatchdogInfo, error) {
	info := &unix.WatchdogInfo{}
	copy(info.Identity[:], "card")
	for option, has := range map[uint32]bool{
		unix.WDIOF_MAGICCLOSE: d.KnowsMagic, unix.WDIOF_SETTIMEOUT: d.SetsTimeout, unix.WDIOF_KEEPALIVEPING: d.KeepsAlive,
	} {
		if has {
			info.Options |= option
		}
	}
	return info, d.SupportErr
}

func (d opened) setTimeout(seconds int) error {
	if seconds > 1000 {
		return unix.EINVAL
	}
	d.Seconds = (seconds + d.Step - 1) / d.Step * d.Step
	return nil
}

func (d opened) timeout() (int, error) { return d.Seconds, d.TimeoutErr }

func (d opened) keepAlive() error {
	d.Fed++
	return d.FeedErr
}

func (d opened) stopAndStart() error {
	switch {
	case d.NoStop:
		return unix.ENOTTY
	case d.NoWayOut:
		return unix.EBUSY
	}
	return nil
}

func (d opened) write(b byte) error {
	d.Magic = b == magic
	return nil
}

func (d opened) close() error {
	d.IsOpen = false
	if d.Magic && !d.NoWayOut {
		d.Armed, d.Magic = false, false
	}
	return nil
}

// Driver returns the driver's name for itself.
func (w *Watchdog) Driver() string { return w.driver }
