package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/retry"
)

// The errors of a command on a device that are not final. All other errors are final.
var (
	errConflict = errors.New("reservation conflict")
	errRefused  = errors.New("refused") // this device, or this way to it, does not know the command or a part of it
	errAgain    = errors.New("the device was not ready")
)

// action is a change of reservations: the service action of PERSISTENT RESERVE OUT, by SPC-4.
type action byte

const (
	register       action = 0x00 // replaces the own key by another one; by 0: unregisters
	reserve        action = 0x01 // acquires a WriteExclusiveAllRegistrants, or joins the present one
	preempt        action = 0x04 // removes all registrations of another key
	preemptAbort   action = 0x05 // and its writes under way
	registerIgnore action = 0x06 // replaces any own key, or none
)

// transport sends the commands that change reservations.
type transport interface {
	// change carries out an action with the own key and another one. It returns errRefused or
	// errAgain, or wraps an errno or the device's error, or returns errConflict if the own key is
	// not registered, or a key to remove. Some targets also return errConflict for another
	// registrant's reservation although all are its holders.
	change(a action, own, other uint64) error

	String() string
}

// handle is an open device.
type handle struct {
	transports []transport // in the order in which to try them
	// readers read the state. They return errRefused or errAgain, or wrap an errno or the
	// device's error.
	readers []func() (State, error)
	close   func()
	name    string // of the disk: see Disk; "" if unknown
}

// opener opens the device at path. It returns ErrUnsupported or wraps an errno.
type opener func(path string) (*handle, error)

// device is one device on which keys are registered. It is open only as long as the task needs. If
// a path names another disk meanwhile, the own key shows that: it is not registered there.
type device struct {
	path string
	name string // of the disk at path: see Disk; "" if any
	open opener
	log  *slog.Logger

	busy    chan struct{} // holds one element while the device is open; guards the fields below
	*handle               // while it is open
	way     string        // the transport that has worked, "": none yet
	warn    bool          // the operator was warned that the device does not abort
}

// do opens the device and calls f. It returns when ctx ends. A command in the kernel then
// continues in the background, no command is sent after it, and the next call begins when it has
// returned.
func (d *device) do(ctx context.Context, f func() error) error {
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("an earlier command is still under way: %w", ctx.Err())
	}
	return within(ctx, func() (err error) {
		defer func() { <-d.busy }()
		if d.handle, err = d.open(d.path); err != nil {
			return err
		}
		defer d.close()
		if d.name != "" && d.handle.name != d.name {
			return fmt.Errorf("the path leads to %s, want %s", d.handle.name, d.name)
		}
		return f()
	})
}

// within returns the error of f, or that of ctx if ctx ends first. f then continues in the
// background: a command in the kernel cannot be interrupted.
func within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// command sends a command without which the device is not usable.
func (d *device) command(ctx context.Context, a action, own, other uint64) error {
	err := d.try(ctx, a, own, other)
	if errors.Is(err, errRefused) {
		return unsupported(err)
	}
	return err
}

// try sends a command with the transport that worked on this device before. The first time, or if
// that one does not know the command, it uses the first transport that does.
func (d *device) try(ctx context.Context, a action, own, other uint64) error {
	order := slices.Clone(d.transports) // two at most
	if i := slices.IndexFunc(order, func(t transport) bool { return t.String() == d.way }); i > 0 {
		order[0], order[i] = order[i], order[0]
	}
	var errs []error
	for _, t := range order {
		_, err := whileAgain(ctx, func() (any, error) { return nil, t.change(a, own, other) })
		if err == nil || errors.Is(err, errConflict) {
			d.way = t.String()
			return err
		}
		errs = append(errs, fmt.Errorf("by %s: %w", t, err))
		// Kernels before 6.4 report a refusal like a device that is not ready. It is a real
		// answer from a transport that has worked before, but not from one that is tried because
		// that one refused.
		if !errors.Is(err, errRefused) && (d.way != "" && len(errs) == 1 || !errors.Is(err, errAgain)) {
			return errs[len(errs)-1]
		}
	}
	if len(errs) == 0 {
		return errRefused
	}
	return join(errs)
}

// join is errors.Join in one line, for logs.
func join(errs []error) (all error) {
	for _, err := range errs {
		switch {
		case all == nil:
			all = err
		case err != nil:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

// whileAgain repeats f while it returns errAgain. A device may have one unit attention for each
// event that happened to it. Each ends with the answer that reports it.
func whileAgain[T any](ctx context.Context, f func() (T, error)) (result T, err error) {
	const attempts = 10
	for i := range attempts {
		if err := retry.Pause(ctx, time.Duration(i*i)*5*time.Millisecond); err != nil {
			return result, err
		}
		if result, err = f(); !errors.Is(err, errAgain) {
			break
		}
	}
	return result, err
}

// unsupported adds advice for the operator.
func unsupported(err error) error {
	return fmt.Errorf("%w: %w; give a whole SCSI or NVMe disk or a multipath device whose target has them, or use the exec agent or another recovery policy", ErrUnsupported, err)
}

// look reads the state. known reports whether there is a way to read it.
func (d *device) look(ctx context.Context) (state State, known bool, err error) {
	for _, read := range d.readers {
		state, err = whileAgain(ctx, read)
		if !errors.Is(err, errRefused) {
			return state, err == nil, err
		}
	}
	return State{}, false, nil
}

func (d *device) register(ctx context.Context, key uint64, resumed bool) error {
	state, _, err := d.look(ctx)
	if err != nil {
		return err
	}
	if state.Held && !state.ours() {
		return reservedBy(state)
	}
	if err := d.registerKey(ctx, key, resumed); err != nil {
		return err
	}
	err = d.inForce(ctx, key)
	if err != nil && !resumed && !errors.Is(err, ErrFenced) {
		_ = d.unregister(ctx, key) // nothing was written under this key yet; the earlier error is returned
	}
	return err
}

// registerKey registers the own key, unless it is registered.
func (d *device) registerKey(ctx context.Context, key uint64, registered bool) error {
	if registered {
		err := d.command(ctx, register, key, key)
		if errors.Is(err, errConflict) {
			return ErrFenced
		}
		return err
	}
	err := d.command(ctx, registerIgnore, 0, key)
	if errors.Is(err, errConflict) {
		// NVMe registers or replaces, and Linux chooses between them by whether there is an old
		// key.
		return d.command(ctx, registerIgnore, key, key)
	}
	return err
}

func (d *device) unregister(ctx context.Context, key uint64) error {
	if err := d.command(ctx, register, key, 0); !errors.Is(err, errConflict) {
		return err
	}
	return nil
}

// inForce ensures that the reservation is in force and the own key registered, as far as that can
// be read.
func (d *device) inForce(ctx context.Context, own uint64) error {
	for range 3 { // if the last registrant leaves between two steps, the reservation ends and is acquired again
		state, known, err := d.look(ctx)
		switch {
		case err != nil:
			return err
		case known && !state.registered(own):
			return ErrFenced
		case known && state.ours():
			return nil
		case known && state.Held:
			return reservedBy(state)
		}
		err = d.command(ctx, reserve, own, 0)
		switch {
		case errors.Is(err, errConflict) && known:
			// Another host was faster, or the own key was removed: the next look decides.
		case errors.Is(err, errConflict):
			return cmp.Or(d.registerKey(ctx, own, true), fmt.Errorf("%w: the reservation cannot be read", ErrReserved))
		case err != nil:
			return err
		case !known:
			return nil
		}
	}
	return fmt.Errorf("%w: the reservation ended repeatedly", ErrUnconfirmed)
}

func reservedBy(s State) error {
	return fmt.Errorf("%w: %s, want %s; another program uses the device, or has left its reservation behind: release it there, or clear it (sg_persist --clear)",
		ErrReserved, s.Type, WriteExclusiveAllRegistrants)
}

// fence removes the key of a target. It first ensures the reservation, without which an
// unregistered host may write. It removes the key, and then reads it, in case the device confirms
// without removing it.
func (d *device) fence(ctx context.Context, own, target uint64, drain time.Duration) error {
	if err := d.inForce(ctx, own); err != nil {
		return err
	}
	aborted, err := d.cut(ctx, own, target)
	if err != nil {
		return err
	}
	for {
		if !aborted {
			if err := retry.Pause(ctx, drain); err != nil {
				return fmt.Errorf("%w: interrupted while waiting for writes that the device had begun: %w", ErrUnconfirmed, err)
			}
		}
		state, known, err := d.look(ctx)
		switch {
		case err != nil:
			return err
		case !known:
			return nil
		case state.registered(target):
			return fmt.Errorf("%w: its key is still registered", ErrUnconfirmed)
		case state.registered(own) && state.ours():
			return nil
		}
		// Some targets drop the reservation with the registration of its creator: the target
		// could write again.
		if err := d.inForce(ctx, own); err != nil {
			return err
		}
		aborted = false
	}
}

// cut removes the registrations of a key. aborted reports whether no writes under it are under
// way any more. It is no error if there are none.
func (d *device) cut(ctx context.Context, own, target uint64) (aborted bool, err error) {
	for conflict := false; ; conflict = true { // another host may have removed a key: that is looked at once more
		state, known, err := d.look(ctx)
		switch {
		case err != nil:
			return false, err
		case known && !state.registered(own):
			return false, ErrFenced
		case known && !state.registered(target):
			return false, nil
		case conflict && known:
			return false, fmt.Errorf("%w: the device refuses to remove its key", ErrUnconfirmed)
		case conflict:
			return false, d.registerKey(ctx, own, true)
		}
		err = d.try(ctx, preemptAbort, own, target)
		aborted := err == nil
		if errors.Is(err, errRefused) {
			if !d.warn {
				d.warn = true
				d.log.Warn("device cannot abort writes of a fenced host, waiting for them each time", "device", d.path, "err", err)
			}
			err = d.command(ctx, preempt, own, target)
		}
		if !errors.Is(err, errConflict) {
			return aborted, err
		}
	}
}

func (d *device) disk() Disk { return Disk{d.path, d.name} }
