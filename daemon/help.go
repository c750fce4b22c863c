package daemon

import (
	"errors"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// The driver of a lock is whoever has its role. That is its own goroutine,
// except where a client's can do at once what it has just asked for: the way
// from one goroutine to another and back takes longer than the device has to
// spare. A client's goroutine takes the role only while the driver rests, and
// for no longer than the reads and writes of its own acquire or release last.
// What takes waiting, or goes wrong, is left to the driver's own goroutine.

// role is that of a lock's driver: a mutex, but for that who waits for it waits
// on a channel, and who has it may be waiting for a disk.
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

// errLeft is returned when the driver is to do the rest.
var errLeft = errors.New("left to the driver")

// help has the caller's goroutine drive the lock, if its driver rests: for w,
// who has just come to the queue, or, if that is nil, for a client that has let
// go. It returns late if the device hangs.
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

// unfinished tells whether there is more for the driver to do than to rest.
func (lk *lock) unfinished() bool {
	if lk.tenure != nil {
		return lk.listening()
	}
	return lk.trying.on || lk.front() != nil || lk.d.stopping()
}

// rest gives the role away until there is something to do.
func (lk *lock) rest() (err error) {
	look, stop := lk.nextLook()
	defer stop()
	ending := lk.d.stop
	if lk.tenure != nil {
		ending = nil // who is inside first lets go
	}
	lk.role.Unlock()
	select {
	case <-lk.wake:
		lk.role.Lock()
	case <-look:
		lk.role.Lock()
		if lk.tenure != nil { // else it was let go meanwhile
			lk.look()
		}
	case t := <-lk.tasks:
		lk.role.Lock()
		err = t.run()
	case <-lk.d.mem.lost:
		lk.role.Lock()
		err = api.ErrLeaseLost
	case <-ending:
		lk.role.Lock()
		if lk.tenure == nil && !lk.trying.on { // else it was taken, or begun to be, in the very moment
			err = errStopped
		}
	}
	if err == nil {
		err = lk.failed
	}
	return err
}
