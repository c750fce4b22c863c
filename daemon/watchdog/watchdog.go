// Package watchdog arms, feeds and disarms the hardware watchdog of a host: a timer, outside of the programs
// that it watches over, that resets the host when it was not fed for its time-out.
//
// It knows the Linux watchdog API, and that opening a watchdog arms it: so none is ever opened just to look
// at it. It never knows when to feed, nor why not to: that is its user's to decide, and there is no timer here.
//
// Begin reading at [Device]; [Open] makes the real one. Package watchdogtest has one in memory, and the
// contract that both keep.
package watchdog

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"
)

// Device is a watchdog that is armed: the host is reset if Feed is not called for Timeout. All methods may be
// called concurrently.
type Device interface {
	// Timeout is how long the host lives on without being fed. It is what the driver made of what it was asked
	// for: it may be more, or less.
	Timeout() time.Duration

	// Feed starts the time-out anew. It returns ErrClosed, or wraps what the system said: then the host will be
	// reset, unless a later Feed comes through in time.
	Feed() error

	// Disarm ends it: the host lives on unfed. It returns ErrClosed; or ErrStillArmed, if the host will be reset
	// all the same. Whatever it returns, the device is closed.
	Disarm() error

	// Leave closes the device and leaves it armed: the host is reset after Timeout, unless the watchdog is
	// opened again before, which feeds it. It returns ErrClosed.
	Leave() error
}

var (
	// ErrClosed is returned when a watchdog is used that was disarmed or left.
	ErrClosed = errors.New("watchdog is closed")

	// ErrBusy is returned when a watchdog is to be opened that a program has open.
	ErrBusy = errors.New("watchdog is in use")

	// ErrNotWatchdog is returned when what is to be opened is no watchdog, or is not there.
	ErrNotWatchdog = errors.New("not a watchdog")

	// ErrUnfit is returned when a watchdog lacks what makes it worth arming.
	ErrUnfit = errors.New("watchdog cannot be relied on")

	// ErrTimeout is returned when a watchdog does not take a time-out, or does not tell which it has.
	ErrTimeout = errors.New("time-out refused by the watchdog")

	// ErrStillArmed is returned when a watchdog could not be disarmed: the host will be reset.
	ErrStillArmed = errors.New("watchdog is still armed")
)

// Watchdog is a Device of the kernel.
type Watchdog struct {
	path    string
	driver  string
	timeout time.Duration

	mu     sync.Mutex // guards what follows, and keeps a Feed from a descriptor that is closed
	card   card
	closed bool
}

var _ Device = (*Watchdog)(nil)

// card is what the kernel offers of an open watchdog. Its errors are bare errno.
type card interface {
	support() (support, error)
	setTimeout(seconds int) error
	timeout() (seconds int, err error)
	keepAlive() error
	stopAndStart() error // ENOTTY, EOPNOTSUPP or EINVAL: the driver knows no such thing
	write(b byte) error  // of magic, the next close disarms; of another, it does not
	close() error
}

// magic is the byte that lets the watchdog be stopped by the close that follows.
const magic = 'V'

// support is what a driver says of itself.
type support struct {
	driver     string
	magicClose bool // closed without magic, as by the end of the process, it stays armed
	setTimeout bool
	keepAlive  bool
}

// Open arms the watchdog at path, to reset the host when it was not fed for want, rounded up to whole seconds.
// The driver has the last word on that: see [Watchdog.Timeout]. One that was left armed is taken on and fed.
//
// It returns ErrNotWatchdog, ErrBusy, ErrUnfit, ErrTimeout, or wraps what the system said. After any error the
// watchdog is disarmed, unless the error is ErrStillArmed as well.
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
		if errors.Is(err, ErrNotWatchdog) { // the magic byte would be just a byte
			return nil, errors.Join(err, card.close())
		}
		return nil, errors.Join(err, w.Disarm())
	}
	return w, nil
}

// setUp makes an open watchdog what was asked for.
func (w *Watchdog) setUp(seconds int) error {
	s, err := w.card.support()
	if err != nil {
		return explainSupport(err)
	}
	w.driver = s.driver
	// Until it is set the time-out is the driver's own; what an error says should have it.
	if n, err := w.card.timeout(); err == nil {
		w.timeout = time.Duration(n) * time.Second
	}
	if !s.magicClose {
		return fmt.Errorf("driver %q lets the host live on when the program that feeds it is killed: %w: use another watchdog, such as softdog", s.driver, ErrUnfit)
	}
	if !s.keepAlive {
		return fmt.Errorf("driver %q cannot be fed by WDIOC_KEEPALIVE: %w: use another watchdog, such as softdog", s.driver, ErrUnfit)
	}
	if s.setTimeout { // else it has the one that it has
		if err := w.card.setTimeout(seconds); err != nil {
			return fmt.Errorf("set time-out of %d s: %w (driver %q, which has %v): %w: choose a time-out that the driver takes", seconds, ErrTimeout, s.driver, w.timeout, err)
		}
	}
	n, err := w.card.timeout()
	if err != nil || n <= 0 {
		return fmt.Errorf("read the time-out that driver %q has made of %d s: %w: it says %d s (%v): use another watchdog, such as softdog", s.driver, seconds, ErrTimeout, n, err)
	}
	w.timeout = time.Duration(n) * time.Second
	// Programs that stop a watchdog before they close it with magic (systemd does) leave the magic behind.
	if err := w.card.write(0); err != nil {
		return fmt.Errorf("take back the magic of an earlier program: %w", err)
	}
	if err := w.card.keepAlive(); err != nil {
		return fmt.Errorf("feed it: %w", err)
	}
	return nil
}

// Timeout is the time-out that the driver has.
func (w *Watchdog) Timeout() time.Duration { return w.timeout }

// Driver is what the driver calls itself.
func (w *Watchdog) Driver() string { return w.driver }

// Feed starts the time-out anew.
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

// Disarm lets the host live on unfed.
func (w *Watchdog) Disarm() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("disarm watchdog %s: %w", w.path, ErrClosed)
	}
	w.closed = true
	// Closing does not tell whether it stopped the watchdog, but stopping it does. It is started again at once, for
	// some drivers arm it once more if it is closed without magic, and others, if closed with magic while it is
	// stopped, remember that until the next close: of a program that is killed, perhaps.
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

// looksRight looks before a file is opened: opening a FIFO blocks, opening a tape winds it.
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
