package driver

import (
	"cmp"
	"errors"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
)

// The driver of a lock is the goroutine that holds its driver mutex. That is the driver's own goroutine, or
// a client's that executes its own request inline: switching goroutines takes longer than a fast
// device does. A client's goroutine takes the mutex only while the driver rests. It keeps it only
// for the reads and writes of its own acquire or release. It leaves waiting and failed IO to the
// driver's own goroutine.

// driverMutex is the driver mutex of a lock. A goroutine that waits for it blocks on a channel, because
// its holder may be waiting for a disk.
type driverMutex chan struct{}

func newDriverMutex() driverMutex { return make(driverMutex, 1) }

func (r driverMutex) Lock()   { r <- struct{}{} }
func (r driverMutex) Unlock() { <-r }

func (r driverMutex) TryLock() bool {
	select {
	case r <- struct{}{}:
		return true
	default:
		return false
	}
}

// errLeft is returned when the driver must do the rest.
var errLeft = errors.New("left to the driver")

// runInline drives the lock in the caller's goroutine if the driver rests. w is the caller, which has
// just been queued; nil if the caller has just released. It blocks while the device hangs.
func (lk *Lock) runInline(w *queue.Item) {
	if !lk.driver.TryLock() {
		lk.Queue.Signal()
		return
	}
	lk.inline = true
	err := lk.serveInline(w)
	lk.inline = false
	left := errors.Is(err, errLeft)
	if err != nil && !left {
		lk.failed = err
	}
	left = left || err != nil || lk.unfinished()
	lk.driver.Unlock()
	if left {
		lk.Queue.Signal()
	}
}

func (lk *Lock) serveInline(w *queue.Item) error {
	switch {
	case lk.failed != nil || lk.trying.on || lk.Queue.Closed() != nil || lk.removalPending:
		return errLeft
	case lk.acquisition == nil && w != nil && lk.Queue.Front() == w && lk.m.Attached():
		if err := lk.acquireOnDisk(w); err != nil || lk.acquisition == nil {
			return err
		}
	case lk.acquisition == nil:
		return nil
	}
	return lk.acquisition.serve()
}

// unfinished reports whether the driver has more to do than to rest.
func (lk *Lock) unfinished() bool {
	if lk.acquisition != nil {
		return lk.Queue.Listening()
	}
	return lk.trying.on || lk.Queue.Front() != nil || lk.host.Stopping()
}

// idle gives up the driver mutex until there is something to do. Called and returns with it held.
func (lk *Lock) idle() (err error) {
	look := lk.nextLook()
	ending := lk.host.Stop
	if lk.acquisition != nil && lk.acquisition.lingerUntil.IsZero() {
		ending = nil // local holders must release first
	}
	task := func() error { return nil }
	lk.driver.Unlock()
	select {
	case <-lk.Queue.Wake:
	case <-look:
		task = func() error {
			lk.look()
			return nil
		}
	case task = <-lk.tasks:
	case <-lk.host.Lost:
		task = func() error { return api.ErrLeaseLost }
	case <-ending:
		task = func() error {
			// else it was acquired, or an attempt began, at this moment
			if lk.acquisition == nil && !lk.trying.on {
				return queue.ErrStopped
			}
			return nil
		}
	}
	lk.driver.Lock()
	return cmp.Or(task(), lk.failed)
}
