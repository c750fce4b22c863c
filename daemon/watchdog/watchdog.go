// Package watchdog arms, feeds and disarms the hardware watchdog of a host. That is a timer
// outside of the watched programs, which resets the host when it was not fed for its time-out.
//
// It knows the Linux watchdog API, and that opening a watchdog arms it. It therefore never opens
// one only to read its properties. It never knows when to feed: the caller decides that, and
// there is no timer here.
//
// Begin with [Device]; [Open] returns the real one. Package watchdogtest has one in memory. Both
// keep the contract in contract_test.go.
package watchdog

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Device is an armed watchdog: the host is reset if Feed is not called for Timeout. All methods
// may be called concurrently.
type Device interface {
	// Timeout returns how long the host runs without Feed. The driver may have made it longer or
	// shorter than requested.
	Timeout() time.Duration

	// Feed restarts the time-out. It returns ErrClosed, or wraps the system's error. After an
	// error the host will be reset unless a later Feed succeeds in time.
	Feed() error

	// Disarm stops the watchdog: the host runs without Feed. It returns ErrClosed, or
	// ErrStillArmed if the host will be reset nevertheless. In all cases the device is closed.
	Disarm() error

	// Leave closes the device and leaves it armed: the host is reset after Timeout, unless the
	// watchdog is opened again before, which feeds it. It returns ErrClosed.
	Leave() error
}

var (
	// ErrClosed is returned when a watchdog is used after Disarm or Leave.
	ErrClosed = errors.New("watchdog is closed")

	// ErrBusy is returned when another program has the watchdog open.
	ErrBusy = errors.New("watchdog is in use")

	// ErrNotWatchdog is returned when the path is not a watchdog, or does not exist.
	ErrNotWatchdog = errors.New("not a watchdog")

	// ErrUnfit is returned when a watchdog lacks a property that makes it reliable.
	ErrUnfit = errors.New("watchdog is not reliable")

	// ErrTimeout is returned when a watchdog does not accept a time-out, or does not report it.
	ErrTimeout = errors.New("time-out refused by the watchdog")

	// ErrStillArmed is returned when a watchdog could not be disarmed: the host will be reset.
	ErrStillArmed = errors.New("watchdog is still armed")
)

// Watchdog is a Device of the kernel.
type Watchdog struct {
	path    string
	driver  string
	timeout time.Duration

	mu     sync.Mutex // guards the fields below, and keeps a Feed from a closed descriptor
	card   card
	closed bool
}

var _ Device = (*Watchdog)(nil)

// card is the kernel's interface to an open watchdog. Its errors are bare errno.
type card interface {
	support() (*unix.WatchdogInfo, error)
	setTimeout(seconds int) error
	timeout() (seconds int, err error)
	keepAlive() error
	stopAndStart() error // ENOTTY, EOPNOTSUPP or EINVAL: not supported by the driver
	write(b byte) error  // after magic the next close disarms; after another byte it does not
	close() error
}

// magic is the byte that makes the following close stop the watchdog.
const magic = 'V'

// Open arms the watchdog at path, to reset the host when it was not fed for want, rounded up to
// whole seconds. The driver may choose another time-out: see [Watchdog.Timeout]. A watchdog that
// was left armed is taken over and fed.
//
// It returns ErrNotWatchdog, ErrBusy, ErrUnfit, ErrTimeout, or wraps the system's error. After
// any error the watchdog is disarmed, unless the error is also ErrStillArmed.
func Open(path string, want time.Duration) (*Watchdog, error) {
	return open(path, want, openCard)
}

func open(path string, want time.Duration, openCard func(path string) (card, error)) (*Watchdog, error) {
	seconds := (want + time.Second - 1) / time.Second
	if want <= 0 || seconds <= 0 || seconds > math.MaxInt32 {
		return nil, fmt.Errorf("arm watchdog %s: time-out of %v: %w: it must be from 1 s to %d s", path, want, ErrTimeout, math.MaxInt32)
	}
	if err := looksRight(path); err != nil {
		return nil, fmt.Errorf("arm watchdog %s: %w", path, err)
	}
	card, err := openCard(path)
	if err != nil {
		return nil, fmt.Errorf("arm watchdog %s: %w", path, explainOpen(err))
	}
	w := &Watchdog{path: path, card: card}
	if err := w.setUp(int(seconds)); err != nil {
		err = fmt.Errorf("arm watchdog %s: %w", path, err)
		if errors.Is(err, ErrNotWatchdog) { // in another file the magic byte would be data
			return nil, errors.Join(err, card.close())
		}
		return nil, errors.Join(err, w.Disarm())
	}
	return w, nil
}

func (w *Watchdog) setUp(seconds int) error {
	info, err := w.card.support()
	switch {
	case notKnown(err):
		return fmt.Errorf("%w: %w", ErrNotWatchdog, err)
	case err != nil:
		return fmt.Errorf("read what its driver can do: %w", err)
	}
	has := func(option uint32) bool { return info.Options&option != 0 }
	w.driver = unix.ByteSliceToString(info.Identity[:])
	// Until it is set the driver's own time-out applies. An error must name that one.
	if n, err := w.card.timeout(); err == nil {
		w.timeout = time.Duration(n) * time.Second
	}
	if !has(unix.WDIOF_MAGICCLOSE) {
		return fmt.Errorf("driver %q does not reset the host when the program that feeds it is killed: %w: use another watchdog, such as softdog", w.driver, ErrUnfit)
	}
	if !has(unix.WDIOF_KEEPALIVEPING) {
		return fmt.Errorf("driver %q cannot be fed by WDIOC_KEEPALIVE: %w: use another watchdog, such as softdog", w.driver, ErrUnfit)
	}
	if has(unix.WDIOF_SETTIMEOUT) { // otherwise the time-out cannot be changed
		if err := w.card.setTimeout(seconds); err != nil {
			return fmt.Errorf("set time-out of %d s: %w (driver %q, which has %v): %w: choose a time-out that the driver takes", seconds, ErrTimeout, w.driver, w.timeout, err)
		}
	}
	n, err := w.card.timeout()
	if err != nil || n <= 0 {
		return fmt.Errorf("read time-out from driver %q after setting %d s: %w: found %d s (%v): use another watchdog, such as softdog", w.driver, seconds, ErrTimeout, n, err)
	}
	w.timeout = time.Duration(n) * time.Second
	// A program that stops a watchdog before it closes it with magic (systemd does) leaves the
	// magic behind.
	if err := w.card.write(0); err != nil {
		return fmt.Errorf("remove the magic of an earlier program: %w", err)
	}
	if err := w.card.keepAlive(); err != nil {
		return fmt.Errorf("feed it: %w", err)
	}
	return nil
}

// Timeout returns the driver's time-out.
func (w *Watchdog) Timeout() time.Duration { return w.timeout }

// Feed restarts the time-out.
func (w *Watchdog) Feed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("feed watchdog %s: %w", w.path, ErrClosed)
	}
	if err := w.card.keepAlive(); err != nil {
		return fmt.Errorf("feed watchdog %s: %w: unless a later try succeeds the host will be reset %v after it was last fed", w.path, err, w.timeout)
	}
	return nil
}

// Disarm stops the watchdog.
func (w *Watchdog) Disarm() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("disarm watchdog %s: %w", w.path, ErrClosed)
	}
	w.closed = true
	// Closing does not report whether it stopped the watchdog, but stopping does. The watchdog is
	// started again immediately, because of two kinds of drivers. Some arm it again if it is
	// closed without magic. Others, if closed with magic while stopped, keep the magic until the
	// next close, which may be that of a killed program.
	stopped := w.card.stopAndStart()
	written := w.card.write(magic)
	closed := w.card.close()
	if stopped == nil || notKnown(stopped) {
		stopped = errors.Join(written, closed)
	}
	if stopped != nil {
		return fmt.Errorf("disarm watchdog %s: %w (%w; nowayout in the driver?): the host will be reset in %v unless the watchdog is opened and fed again", w.path, ErrStillArmed, stopped, w.timeout)
	}
	return nil
}

// Leave closes the device and leaves it armed.
func (w *Watchdog) Leave() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("leave watchdog %s: %w", w.path, ErrClosed)
	}
	w.closed = true
	if err := w.card.close(); err != nil {
		return fmt.Errorf("close watchdog %s: %w", w.path, err)
	}
	return nil
}

// looksRight checks a file before it is opened: opening a FIFO blocks, opening a tape winds it.
func looksRight(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %w: load the driver of the host's watchdog, or modprobe softdog", ErrNotWatchdog, err)
	case err != nil:
		return err
	case info.Mode()&os.ModeCharDevice == 0:
		return fmt.Errorf("%w: it is no character device: give one such as /dev/watchdog", ErrNotWatchdog)
	}
	return nil
}
