package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/layout"
)

// do runs f in the lock's driver, for another goroutine, and waits for it. The driver runs it when it
// waits next: for a client, for other hosts, or for the end of a hold. The machine has no write in
// flight then.
func (lk *Lock) do(f func() error) error {
	done := make(chan error, 1)
	task := func() error {
		err := f()
		done <- err
		if errors.Is(err, api.ErrLeaseLost) || errors.Is(err, ErrSuperseded) {
			return err
		}
		return nil // other errors concern the task alone
	}
	select {
	case lk.tasks <- task:
		return <-done
	case <-lk.done:
		return lk.Queue.Closed()
	case <-lk.host.Lost:
		return fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
}

// publish rewrites the own slot as the protocol has it, after change has set fields that the
// protocol does not know. Called by the driver.
func (lk *Lock) publish(change func(own *layout.Slot)) error {
	if !lk.m.Attached() {
		a, err := lk.protocol(lk.m.Attach(), always)
		if err != nil {
			return err
		}
		if a.Outcome == bakery.Exhausted {
			return lk.exhausted()
		}
	}
	before := lk.slots.Own
	change(&lk.slots.Own)
	err := lk.write(lk.m.OwnSlot())
	if err != nil {
		lk.slots.Own = before
	}
	return err
}

// ShowNesting rewrites the own slot if it is waiting: a client in the queue waits below a holder. If
// that fails, the slot does not show it.
func (lk *Lock) ShowNesting() {
	_ = lk.do(func() error {
		if lk.m.OwnSlot().Phase != layout.Waiting {
			return nil
		}
		return lk.write(lk.m.OwnSlot())
	})
}

// RewriteIdle rewrites the own slot if the lock is not in use. It blocks on the device.
func (lk *Lock) RewriteIdle() {
	_ = lk.do(func() error {
		if lk.m.Attached() && lk.m.OwnSlot().Phase != layout.Idle {
			return nil // other hosts may have entered by that: see intact
		}
		return lk.publish(func(*layout.Slot) {})
	})
}

// Dev returns the device for IO of the lock: a lease is not renewed while such IO hangs.
func (lk *Lock) Dev() store.Device { return lk.slots.Dev }

// Done returns a channel that is closed when the driver has ended.
func (lk *Lock) Done() <-chan struct{} { return lk.done }

// SlotTx is the own slot of a lock for one function, while the driver does nothing else.
type SlotTx struct{ lk *Lock }

// WithSlot calls f with the own slot and waits for it. It may block on the device. It returns the
// error of f, ErrUnavailable or ErrLeaseLost.
func (lk *Lock) WithSlot(f func(SlotTx) error) error {
	return lk.do(func() error { return f(SlotTx{lk}) })
}

// Dev returns the device for IO of the lock's slots: a lease is not renewed while such IO hangs.
func (s SlotTx) Dev() store.Device { return s.lk.slots.Dev }

// Own returns the slot as it was last written.
func (s SlotTx) Own() layout.Slot { return s.lk.slots.Own }

// Publish rewrites the slot as the protocol has it, after change has set fields that the protocol
// does not know.
func (s SlotTx) Publish(change func(own *layout.Slot)) error { return s.lk.publish(change) }

// Rewrite writes the slot as it was last written, once, and returns how long the device took.
func (s SlotTx) Rewrite() (time.Duration, error) { return s.lk.slots.Rewrite() }

// Intend makes an intent durable. From here on the other hosts know which write may land. It returns the
// entry to write, as Slots.Intend does.
func (lk *Lock) Intend(e layout.Entry, binds bool) (layout.Entry, error) {
	err := lk.do(func() error {
		e = lk.slots.Intend(e, lk.m.OwnSlot().Ticket, binds)
		_, err := lk.protocol(lk.m.Settle(), always)
		return err
	})
	return e, err
}

// Intended removes the intent. The release makes that durable.
func (lk *Lock) Intended() error {
	return lk.do(func() error {
		lk.slots.Intended()
		return nil
	})
}

// OwnIntent returns what Slots.Intent does.
func (lk *Lock) OwnIntent() (i layout.Intent, former, found bool, err error) {
	err = lk.do(func() error {
		i, former, found, err = lk.slots.Intent()
		return err
	})
	return i, former, found, err
}
