package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// SetMode changes the mode of the hold; the token stays. A change to shared admits readers, also of
// this host, but no reader before a writer that came earlier. A change to exclusive is granted
// immediately if no other host takes part in the lock and no other local client holds it. Otherwise
// it is refused with ErrUpgrade: it never waits, so two holders that request it do not wait for
// each other. The current mode is no error.
//
// It returns ErrUpgrade, ErrInvalid (a lock of several permits), ErrLost, ErrLeaseLost, or the
// cause of ctx's end. In the last case the mode may still change.
func (h *Hold) SetMode(ctx context.Context, mode layout.Mode) error {
	if mode > layout.Shared {
		return fmt.Errorf("%w: %v", api.ErrInvalid, mode)
	}
	return h.change(ctx, func(t *acquisition) error { return t.setMode(h, mode) })
}

// change has the driver call f under the hold, for a client, which does not wait for a device that
// hangs.
func (h *Hold) change(ctx context.Context, f func(*acquisition) error) error {
	lk := h.lk
	out := make(chan error, 1)
	go func() {
		out <- lk.do(func() error {
			if lk.acquisition == nil || !lk.Queue.Holds(&h.Item) {
				return h.releasedErr()
			}
			return f(lk.acquisition)
		})
	}()
	var err error
	select {
	case err = <-out:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.Lost():
		return h.Err()
	}
	switch lost := h.Err(); {
	case err == nil:
		return nil
	case lost != nil:
		return lost
	case errors.Is(err, api.ErrUnavailable), errors.Is(err, ErrSuperseded):
		// The driver has ended, and every hold with it.
		return fmt.Errorf("%w: %v", api.ErrLost, err)
	}
	return err
}

func (h *Hold) releasedErr() error {
	return fmt.Errorf("%w: lock %q was released", api.ErrLost, h.lk.Entry.Name)
}

func (t *acquisition) setMode(h *Hold, mode layout.Mode) error {
	lk := t.lk
	switch {
	case h.Mode() == mode:
		return nil
	case lk.Entry.Permits > 1: // the machine would leave the mode as it is; see bakery/PROTOCOL.md
		return fmt.Errorf("%w: lock %q has %d permits: release it, and acquire it again in the other mode",
			api.ErrInvalid, lk.Entry.Name, lk.Entry.Permits)
	case mode == layout.Shared:
		return t.downgrade(h)
	}
	return t.upgrade(h)
}

// downgrade records the mode before the disk shows it. A next process that took a shared hold for
// an exclusive one would hold it together with other readers.
func (t *acquisition) downgrade(h *Hold) error {
	lk := t.lk
	if !lk.Queue.SetMode(&h.Item, layout.Shared) {
		return h.releasedErr()
	}
	if _, err := lk.protocol(lk.m.Downgrade(), always); err != nil {
		return err
	}
	// The hosts that closed it waited for a shared hold, and had gone when it became exclusive.
	t.mode = layout.Shared
	t.grants.Reopen()
	return nil
}

// upgrade records the mode after the disk shows it, for the same reason.
func (t *acquisition) upgrade(h *Hold) error {
	lk := t.lk
	if others := lk.Queue.Holders() - 1; others > 0 {
		return fmt.Errorf("%w: %d other clients of this host hold lock %q", api.ErrUpgrade, others, lk.Entry.Name)
	}
	lk.applyHostTable() // apply deaths since the slots were read: the machine reads them once only
	if _, err := lk.protocol(lk.m.Upgrade(), always); err != nil {
		return err
	}
	if err := t.awaitGrant(); err != nil { // the device may have taken long since the claim
		return err
	}
	if t.mode = lk.m.Mode(); t.mode != layout.Exclusive {
		return fmt.Errorf("%w: another host holds lock %q or waits for it", api.ErrUpgrade, lk.Entry.Name)
	}
	t.settleSoon(time.Now()) // the slot shows a claim
	// Readers of other hosts may have come and gone with greater tokens, so the next client needs a
	// ticket of its own.
	t.grants.Close()
	if !lk.Queue.SetMode(&h.Item, layout.Exclusive) {
		return h.releasedErr()
	}
	return nil
}

// awaitGrant blocks until locks may be granted.
func (t *acquisition) awaitGrant() error {
	for {
		ok, changed := t.lk.host.Member.MayGrant()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-t.lk.host.Lost:
			return api.ErrLeaseLost
		}
	}
}

func always() bool { return true }

// KeepValue shows a value in the own slot, unless no client of this host has the lock, or the slot shows
// that value or a later one.
func (lk *Lock) KeepValue(value []byte, token layout.Ticket) error {
	return lk.do(func() error {
		if lk.Queue.Holders() == 0 || lk.slots.Own.ValueToken >= token {
			return nil
		}
		return lk.publish(func(own *layout.Slot) { own.Value, own.ValueToken = value, token })
	})
}

// SetValue sets the value of the lock, of at most layout.MaxValue bytes; an empty one clears it. It
// returns once the value is durable. Only an exclusive holder may set it.
//
// It returns ErrInvalid, ErrLost, ErrLeaseLost, or the cause of ctx's end. In the last case the
// value may still be set.
func (h *Hold) SetValue(ctx context.Context, value []byte) error {
	if err := layout.ValidateValue(value); err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	if h.lk.Entry.Lock == lockspace.DirectoryLock { // whose values are intents
		return fmt.Errorf("%w: the directory's lock has no value", api.ErrInvalid)
	}
	value = bytes.Clone(value) // the caller may return before the driver is done
	return h.change(ctx, func(t *acquisition) error {
		if t.mode != layout.Exclusive {
			return fmt.Errorf("%w: lock %q is held shared, and only an exclusive holder sets its value: acquire it exclusively", api.ErrInvalid, t.lk.Entry.Name)
		}
		return t.lk.publish(func(own *layout.Slot) { own.Value, own.ValueToken = value, h.Token() })
	})
}
