package daemon

import (
	"errors"
	"fmt"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// task is something that only a lock's driver may do, for somebody else. It is
// done the next time that the driver waits: for a client, for a turn, or for
// the end of a hold. The machine has no write under way then.
type task struct {
	f    func() error
	done chan error // takes one
}

// run does the task. What it returns ends the driver: that the lock or the
// lease is lost. Any other error is the task's own.
func (t task) run() error {
	err := t.f()
	t.done <- err
	if errors.Is(err, api.ErrLeaseLost) || errors.Is(err, errSuperseded) {
		return err
	}
	return nil
}

// do has the driver of a lock do something, and waits for that.
func (lk *lock) do(f func() error) error {
	t := task{f: f, done: make(chan error, 1)}
	select {
	case lk.tasks <- t:
		return <-t.done
	case <-lk.done:
		lk.mu.Lock()
		defer lk.mu.Unlock()
		return lk.closed
	case <-lk.d.mem.lost:
		return fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
}

// publish rewrites the own slot as the protocol has it, with what change does
// to the fields that the protocol does not know of. It is the driver's alone.
func (lk *lock) publish(change func(own *layout.Slot)) error {
	if !lk.m.Attached() {
		a, err := lk.protocol(lk.m.Attach(), always)
		if err != nil {
			return err
		}
		if a.Outcome == bakery.Exhausted {
			return lk.exhausted()
		}
	}
	before := lk.area.own
	change(&lk.area.own)
	err := lk.write(lk.m.OwnSlot())
	if err != nil {
		lk.area.own = before
	}
	return err
}
