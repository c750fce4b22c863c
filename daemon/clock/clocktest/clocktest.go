// Package clocktest has a clock for bubbles of testing/synctest, where time passes only while all
// goroutines of the bubble are blocked.
package clocktest

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/clock"
)

// begun is when each bubble begins, and uptime what a clock shows then.
var begun = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const uptime = 24 * time.Hour

// Clock is a host's clock in a bubble. Clocks of a bubble that have the same rate show the same
// time.
type Clock struct {
	Rate float64 // 0: 1; a clock is fast above 1, and slow below
}

var _ clock.Clock = Clock{}

func (c Clock) rate() float64 {
	if c.Rate == 0 {
		return 1
	}
	return c.Rate
}

// Now returns the time since a moment well before the bubble began.
func (c Clock) Now() time.Duration {
	return uptime + time.Duration(c.rate()*float64(time.Since(begun)))
}

// NewAlarm returns an alarm that is not set yet.
func (c Clock) NewAlarm() (clock.Alarm, error) {
	return &alarm{clock: c, closed: make(chan struct{}), rings: make(chan struct{}, 1)}, nil
}

// Spin returns false: timers of a bubble are exact.
func (Clock) Spin(time.Duration) bool { return false }

type alarm struct {
	clock  Clock
	closed chan struct{}
	rings  chan struct{} // takes one

	mu    sync.Mutex // guards the rest
	timer *time.Timer
	over  bool // closed is closed
}

var errClosed = errors.New("alarm is closed")

func (a *alarm) Set(at time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return errClosed
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	select {
	case <-a.rings: // for the moment that it was set to before
	default:
	}
	a.timer = time.AfterFunc(time.Duration(math.Ceil(float64(at-a.clock.Now())/a.clock.rate())), func() {
		select {
		case a.rings <- struct{}{}:
		default:
		}
	})
	return nil
}

func (a *alarm) Wait() error {
	select {
	case <-a.rings:
		return nil
	case <-a.closed:
		return errClosed
	}
}

func (a *alarm) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.over = true
	if a.timer != nil {
		a.timer.Stop()
	}
	close(a.closed)
}
