//go:build sim

package boottime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/pprof"
	"sync"
	"time"
	"unsafe"
)

// Simulated tells whether time is that of a simulation.
const Simulated = true

// begun is when any simulation begins.
var begun = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// uptime is what the clock shows then.
const uptime = 24 * time.Hour

// rates has at which rate time passes for some goroutines, by their profiler labels: those are handed on to the goroutines
// that they start, and to timers that they set.
var rates sync.Map

// labelled has a context with labels of its own for each rate.
var labelled sync.Map

//go:linkname labels runtime/pprof.runtime_getProfLabel
func labels() unsafe.Pointer

//go:linkname setLabels runtime/pprof.runtime_setProfLabel
func setLabels(unsafe.Pointer)

func rate() float64 {
	if r, ok := rates.Load(labels()); ok {
		return r.(float64)
	}
	return 1
}

// At has f run with a clock on which time passes at another rate than 1: it goes fast above, and slow below.
func At(rate float64, f func()) {
	defer setLabels(labels())
	ctx, _ := labelled.LoadOrStore(rate, pprof.WithLabels(context.Background(), pprof.Labels("rate", fmt.Sprint(rate))))
	pprof.SetGoroutineLabels(ctx.(context.Context))
	rates.Store(labels(), rate) // stays: goroutines that f starts may outlive it
	f()
}

// Now is the time since well before any simulation begins.
func Now() time.Duration {
	return uptime + time.Duration(rate()*float64(time.Since(begun)))
}

// Alarm rings at a moment.
type Alarm struct {
	mu     sync.Mutex // guards timer and closed
	timer  *time.Timer
	closed chan struct{}
	over   bool
	rings  chan struct{} // takes one
}

// NewAlarm returns an alarm that is yet to be set.
func NewAlarm() (*Alarm, error) {
	return &Alarm{closed: make(chan struct{}), rings: make(chan struct{}, 1)}, nil
}

var errClosed = errors.New("alarm is closed")

// Set moves the moment to at, whether or not the alarm has rung. What is over
// rings at once. It fails only on an alarm that was closed.
func (a *Alarm) Set(at time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return errClosed
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	select {
	case <-a.rings: // for what it was set to before
	default:
	}
	a.timer = time.AfterFunc(time.Duration(math.Ceil(float64(at-Now())/rate())), func() {
		select {
		case a.rings <- struct{}{}:
		default:
		}
	})
	return nil
}

// Wait returns nil when the alarm rings, and an error once it was closed.
func (a *Alarm) Wait() error {
	select {
	case <-a.rings:
		return nil
	case <-a.closed:
		return errClosed
	}
}

// Close ends every Wait.
func (a *Alarm) Close() {
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
