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
	timer, closed := time.NewTimer(math.MaxInt64), make(chan struct{})
	return &alarm{clock: c, timer: timer, closed: closed, end: sync.OnceFunc(func() { timer.Stop(); close(closed) })}, nil
}

// Spin returns false: timers of a bubble are exact.
func (Clock) Spin(time.Duration) bool { return false }

type alarm struct {
	clock  Clock
	timer  *time.Timer
	closed chan struct{}
	end    func() // closes closed, once
}

var errClosed = errors.New("alarm is closed")

func (a *alarm) Set(at time.Duration) error {
	select {
	case <-a.closed:
		return errClosed
	default:
	}
	a.timer.Reset(time.Duration(math.Ceil(float64(at-a.clock.Now()) / a.clock.rate())))
	return nil
}

func (a *alarm) Wait() error {
	select {
	case <-a.timer.C:
		return nil
	case <-a.closed:
		return errClosed
	}
}

func (a *alarm) Close() { a.end() }
