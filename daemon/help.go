package daemon

import (
	"errors"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// The driver of a lock is the goroutine that holds its role. That is the driver's own goroutine, or
// a client's that executes its own request inline: switching goroutines takes longer than a fast
// device does. A client's goroutine takes the role only while the driver rests. It keeps it only
// for the reads and writes of its own acquire or release. It leaves waiting and failed IO to the
// driver's own goroutine.

// role is the driver mutex of a lock. A goroutine that waits for it blocks on a channel, because
// its holder may be waiting for a disk.
type role chan struct{}

func newRole() role { return make(role, 1) }

func (r role) Lock()   { r <- struct{}{} }
func (r role) Unlock() { <-r }

func (r role) TryLock() bool {
	select {
	case r <- struct{}{}:
		return true
	default:
		return false
	}
}

// errLeft is returned when the driver must do the rest.
var errLeft = errors.New("left to the driver")

// help drives the lock in the caller's goroutine if the driver rests. w is the caller, which has
// just been queued; nil if the caller has just released. help blocks while the device hangs.
func (lk *lock) help(w *waiter) {
	if !lk.role.TryLock() {
		lk.signal()
		return
	}
	lk.helped = true
	err := lk.assist(w)
	lk.helped = false
	left := errors.Is(err, errLeft)
	if err != nil && !left {
		lk.failed = err
	}
	left = left || err != nil || lk.unfinished()
	lk.role.Unlock()
	if left {
		lk.signal()
	}
}

func (lk *lock) assist(w *waiter) error {
	switch {
	case lk.failed != nil || lk.trying.on || lk.isShut() || lk.doomed:
		return errLeft
	case lk.tenure == nil && w != nil && lk.front() == w && lk.m.Attached():
		if err := lk.attempt(w); err != nil || lk.tenure == nil {
			return err
		}
	case lk.tenure == nil:
		return nil
	}
	return lk.tenure.serve()
}

// unfinished reports whether the driver has more to do than to rest.
func (lk *lock) unfinished() bool {
	if lk.tenure != nil {
		return lk.listening()
	}
	return lk.trying.on || lk.front() != nil || lk.d.stopping()
}

// rest gives up the role until there is something to do. Called with role held; returns with it
// held.
func (lk *lock) rest() (err error) {
	look, stop := lk.nextLook()
	defer stop()
	ending := lk.d.stop
	if lk.tenure != nil {
		ending = nil // local holders must release first
	}
	lk.role.Unlock()
	select {
	case <-lk.wake:
		lk.role.Lock()
	case <-look:
		lk.role.Lock()
		if lk.tenure != nil { // else it was released meanwhile
			lk.look()
		}
	case t := <-lk.tasks:
		lk.role.Lock()
		err = t.run()
	case <-lk.d.mem.Lost():
		lk.role.Lock()
		err = api.ErrLeaseLost
	case <-ending:
		lk.role.Lock()
		// else it was acquired, or an attempt began, at this moment
		if lk.tenure == nil && !lk.trying.on {
			err = errStopped
		}
	}
	if err == nil {
		err = lk.failed
	}
	return err
}
