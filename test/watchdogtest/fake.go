// Package watchdogtest has a watchdog in memory. It simulates a driver and records when the host
// would be reset. It resets nothing. The tests of package watchdog check that it keeps the
// promises of a Device. Begin with [Hardware].
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

// Hardware is the watchdog of a host. Its state follows from the clock when it is read: it needs
// no goroutine.
type Hardware struct {
	clock func() time.Duration

	mu      sync.Mutex // guards the fields below
	open    *device    // nil: not open
	armed   bool
	timeout time.Duration
	fed     time.Duration // last time
	feeds   []time.Duration
	resetAt time.Duration
	reset   bool
}

// New returns a watchdog that is not armed, on a host with the given clock.
func New(clock func() time.Duration) *Hardware { return &Hardware{clock: clock} }

// Armed reports whether the host would be reset without Feed.
func (h *Hardware) Armed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elapse()
	return h.armed
}

// Feeds returns the times at which it was fed, including the opening.
func (h *Hardware) Feeds() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.feeds)
}

// Reset reports whether it has reset the host, and when.
func (h *Hardware) Reset() (at time.Duration, reset bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elapse()
	return h.resetAt, h.reset
}

// Open replaces [watchdog.Open].
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
	h.timeout = (want + time.Second - 1) / time.Second * time.Second
	h.armed = true
	h.feed()
	h.open = &device{hardware: h, path: path, timeout: h.timeout}
	return h.open, nil
}

// elapse updates the state to the present time.
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

func (d *device) Feed() error { return d.use("feed", (*Hardware).feed) }

func (d *device) Disarm() error {
	return d.use("disarm", func(h *Hardware) { h.open, h.armed = nil, false })
}

func (d *device) Leave() error {
	return d.use("leave", func(h *Hardware) { h.open = nil })
}

func (d *device) use(what string, do func(*Hardware)) error {
	h := d.hardware
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elapse()
	switch {
	case h.open != d:
		return fmt.Errorf("%s watchdog %s: %w", what, d.path, watchdog.ErrClosed)
	case h.reset:
		return fmt.Errorf("%s watchdog %s: %w", what, d.path, ErrReset)
	}
	do(h)
	return nil
}
