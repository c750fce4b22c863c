// Package watchdogtest has a watchdog in memory, and the contract of package watchdog's Device, which it keeps as
// the real one does.
//
// It knows what a driver would do and notes when the host would be reset. It resets nothing.
//
// Begin reading at [Hardware]; [Contract] is the suite.
package watchdogtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/watchdog"
)

// ErrReset is returned when a watchdog is used after it has reset its host.
var ErrReset = errors.New("the host was reset")

// Hardware is the watchdog of a host. What it does follows from the clock at the time it is looked at: it needs
// no goroutine.
type Hardware struct {
	clock func() time.Duration

	mu       sync.Mutex // guards what follows
	noWayOut bool
	deaf     error // what Feed returns
	maximum  time.Duration
	open     *device // nil: nobody has it open
	armed    bool
	timeout  time.Duration
	fed      time.Duration // last time
	feeds    []time.Duration
	resetAt  time.Duration
	reset    bool
}

// New returns a watchdog that is not armed, on a host with the given clock.
func New(clock func() time.Duration) *Hardware { return &Hardware{clock: clock, maximum: 1<<63 - 1} }

// NoWayOut makes it one that cannot be disarmed.
func (h *Hardware) NoWayOut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noWayOut = true
}

// Limit is the longest time-out that its driver takes; longer ones are rounded down to it.
func (h *Hardware) Limit(maximum time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.maximum = maximum
}

// Deafen makes every Feed return err and do nothing, from now on; nil ends it.
func (h *Hardware) Deafen(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaf = err
}

// Armed tells whether the host would be reset if nobody fed it.
func (h *Hardware) Armed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elapse()
	return h.armed
}

// Feeds returns the times at which it was fed, the opening included.
func (h *Hardware) Feeds() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.feeds)
}

// Reset returns when it has reset the host, and whether it has.
func (h *Hardware) Reset() (at time.Duration, reset bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elapse()
	return h.resetAt, h.reset
}

// Open is what [watchdog.Open] is for the kernel's.
func (h *Hardware) Open(path string, want time.Duration) (watchdog.Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elapse()
	switch {
	case want <= 0:
		return nil, fmt.Errorf("arm watchdog %s: time-out of %v: %w", path, want, watchdog.ErrTimeout)
	case h.reset:
		return nil, fmt.Errorf("arm watchdog %s: %w", path, ErrReset)
	case h.open != nil:
		return nil, fmt.Errorf("arm watchdog %s: %w", path, watchdog.ErrBusy)
	}
	h.timeout = min(h.maximum, (want+time.Second-1)/time.Second*time.Second)
	h.armed = true
	h.feed()
	h.open = &device{hardware: h, path: path, timeout: h.timeout}
	return h.open, nil
}

// elapse notes what has happened up to now.
func (h *Hardware) elapse() {
	if due := h.fed + h.timeout; h.armed && h.clock() >= due {
		h.armed, h.reset, h.resetAt = false, true, due
	}
}

func (h *Hardware) feed() {
	h.fed = h.clock()
	h.feeds = append(h.feeds, h.fed)
}

// device is Hardware that a program has open.
type device struct {
	hardware *Hardware
	path     string
	timeout  time.Duration
}

func (d *device) Timeout() time.Duration { return d.timeout }

func (d *device) Feed() error {
	return d.use("feed", func(h *Hardware) error {
		if h.deaf == nil {
			h.feed()
		}
		return h.deaf
	})
}

func (d *device) Disarm() error {
	return d.use("disarm", func(h *Hardware) error {
		h.open = nil
		if h.noWayOut {
			return fmt.Errorf("%w: the host will be reset in %v", watchdog.ErrStillArmed, h.timeout)
		}
		h.armed = false
		return nil
	})
}

func (d *device) Leave() error {
	return d.use("leave", func(h *Hardware) error {
		h.open = nil
		return nil
	})
}

func (d *device) use(what string, do func(*Hardware) error) error {
	h := d.hardware
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elapse()
	err := ErrReset
	switch {
	case h.open != d:
		err = watchdog.ErrClosed
	case !h.reset:
		err = do(h)
	}
	if err != nil {
		return fmt.Errorf("%s watchdog %s: %w", what, d.path, err)
	}
	return nil
}
