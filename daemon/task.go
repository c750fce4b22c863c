package daemon

import (
	"errors"
	"fmt"

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
	if errors.Is(err, ErrLost) || errors.Is(err, errSuperseded) {
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
		return fmt.Errorf("%w: %w", ErrUnavailable, ErrLost)
	}
}

// publish rewrites the own slot as the protocol has it, with what change does
// to the fields that the protocol does not know of. It is the driver's alone.
func (lk *lock) publish(change func(own *layout.Slot)) error {
	if !lk.area.known { // the own last ticket has to be known first
		if _, err := lk.protocol(lk.m.Attach(), func() bool { return true }); err != nil {
			return err
		}
	}
	before, mine := lk.area.own, lk.m.Mine()
	lk.area.own = ofCreation(before, mine.Creation)
	change(&lk.area.own)
	err := lk.write(mine)
	if err != nil {
		lk.area.own = before
	}
	return err
}
