package fence

import (
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

// transport sends the commands that change reservations. Each method returns errConflict,
// errRefused or errAgain, or wraps an errno or the device's error.
type transport interface {
	// register replaces the own key old by new. With ignore it replaces any key or none. Without
	// ignore it returns errConflict if old is not the registered key. new 0 unregisters.
	register(old, new uint64, ignore bool) error

	// reserve acquires a reservation of type WriteExclusiveAllRegistrants, or joins the present
	// one. Some targets answer errConflict for another registrant's reservation although all are
	// its holders.
	reserve(key uint64) error

	// preempt removes all registrations of target, and with abort also its writes under way. It
	// returns errConflict if target or own is not registered.
	preempt(own, target uint64, abort bool) error

	String() string
}

// reader reads the state of a device. It returns errRefused or errAgain, or wraps an errno or the
// device's error.
type reader interface {
	state() (State, error)
}

// handle is an open device.
type handle struct {
	transports []transport // in the order in which to try them
	readers    []reader
	close      func()
}

// opener opens the device at path. It returns ErrUnsupported or wraps an errno.
type opener func(path string) (*handle, error)

// device is one device on which keys are registered.
type device struct {
	path string
	open opener
	log  *slog.Logger

	busy chan struct{} // holds one element while a session is open; guards way and warn
	way  string        // the transport that has worked, "": none yet
	warn bool          // the operator was warned that the device does not abort
}

func newDevice(path string, open opener, log *slog.Logger) *device {
	return &device{path: path, open: open, log: log, busy: make(chan struct{}, 1)}
}

// session is a device while it is open, which is only as long as the task needs. If a path names
// another disk meanwhile, the own key shows that: it is not registered there.
type session struct {
	*device
	*handle
}

// do opens the device and calls f. It returns when ctx ends. A command in the kernel then
// continues in the background, no command is sent after it, and the next session begins when it
// has returned.
func (d *device) do(ctx context.Context, f func(context.Context, *session) error) error {
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("an earlier command is still under way: %w", ctx.Err())
	}
	return within(ctx, func() error {
		defer func() { <-d.busy }()
		h, err := d.open(d.path)
		if err != nil {
			return err
		}
		defer h.close()
		return f(ctx, &session{device: d, handle: h})
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
func (s *session) command(ctx context.Context, f func(transport) error) error {
	err := s.try(ctx, f)
	if errors.Is(err, errRefused) {
		return unsupported(err)
	}
	return err
}

// try calls f with the transport that worked on this device before. The first time, or if that one
// does not know the command, it uses the first transport that does.
func (s *session) try(ctx context.Context, f func(transport) error) error {
	order := slices.Clone(s.transports) // two at most
	if i := slices.IndexFunc(order, func(t transport) bool { return t.String() == s.way }); i > 0 {
		order[0], order[i] = order[i], order[0]
	}
	var errs []error
	for _, t := range order {
		err := whileAgain(ctx, func() error { return f(t) })
		if err == nil || errors.Is(err, errConflict) {
			s.way = t.String()
			return err
		}
		errs = append(errs, fmt.Errorf("by %s: %w", t, err))
		// Kernels before 6.4 report a refusal like a device that is not ready. It is a real
		// answer from a transport that has worked before, but not from one that is tried because
		// that one refused.
		if !errors.Is(err, errRefused) && (s.way != "" && len(errs) == 1 || !errors.Is(err, errAgain)) {
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
func whileAgain(ctx context.Context, f func() error) error {
	const attempts = 10
	for i := range attempts {
		if err := retry.Pause(ctx, time.Duration(i*i)*5*time.Millisecond); err != nil {
			return err
		}
		err := f()
		if !errors.Is(err, errAgain) || i == attempts-1 {
			return err
		}
	}
	return nil
}

// unsupported adds advice for the operator.
func unsupported(err error) error {
	return fmt.Errorf("%w: %w; give a whole SCSI or NVMe disk or a multipath device whose target has them, or use the exec agent or another recovery policy", ErrUnsupported, err)
}

// look reads the state. known reports whether there is a way to read it.
func (s *session) look(ctx context.Context) (state State, known bool, err error) {
	for _, r := range s.readers {
		err := whileAgain(ctx, func() (err error) {
			state, err = r.state()
			return err
		})
		if !errors.Is(err, errRefused) {
			return state, err == nil, err
		}
	}
	return State{}, false, nil
}

func (s *session) register(ctx context.Context, key uint64, resumed bool) error {
	state, known, err := s.look(ctx)
	if err != nil {
		return err
	}
	if known && state.Held && !state.ours() {
		return reservedBy(state)
	}
	if err := s.registerKey(ctx, key, resumed); err != nil {
		return err
	}
	err = s.inForce(ctx, key)
	if err != nil && !resumed && !errors.Is(err, ErrFenced) {
		_ = s.unregister(ctx, key) // nothing was written under this key yet; the earlier error is returned
	}
	return err
}

// registerKey registers the own key, unless it is registered.
func (s *session) registerKey(ctx context.Context, key uint64, registered bool) error {
	old, ignore := uint64(0), true
	if registered {
		old, ignore = key, false
	}
	err := s.command(ctx, func(t transport) error { return t.register(old, key, ignore) })
	switch conflict := errors.Is(err, errConflict); {
	case conflict && registered:
		return ErrFenced
	case conflict:
		// NVMe registers or replaces, and Linux chooses between them by whether there is an old
		// key.
		return s.command(ctx, func(t transport) error { return t.register(key, key, true) })
	}
	return err
}

func (s *session) unregister(ctx context.Context, key uint64) error {
	err := s.command(ctx, func(t transport) error { return t.register(key, 0, false) })
	if errors.Is(err, errConflict) {
		return nil
	}
	return err
}

// inForce ensures that the reservation is in force and the own key registered, as far as that can
// be read.
func (s *session) inForce(ctx context.Context, own uint64) error {
	for range 3 { // if the last registrant leaves between two steps, the reservation ends and is acquired again
		state, known, err := s.look(ctx)
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
		err = s.command(ctx, func(t transport) error { return t.reserve(own) })
		switch {
		case errors.Is(err, errConflict) && known:
			// Another host was faster, or the own key was removed: the next look decides.
		case errors.Is(err, errConflict):
			if err := s.registerKey(ctx, own, true); err != nil {
				return err
			}
			return fmt.Errorf("%w: the reservation cannot be read", ErrReserved)
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
func (s *session) fence(ctx context.Context, own, target uint64, drain time.Duration) error {
	if err := s.inForce(ctx, own); err != nil {
		return err
	}
	aborted, err := s.cut(ctx, own, target)
	if err != nil {
		return err
	}
	for {
		if !aborted {
			if err := retry.Pause(ctx, drain); err != nil {
				return fmt.Errorf("%w: interrupted while waiting for writes that the device had begun: %w", ErrUnconfirmed, err)
			}
		}
		state, known, err := s.look(ctx)
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
		if err := s.inForce(ctx, own); err != nil {
			return err
		}
		aborted = false
	}
}

// cut removes the registrations of a key. aborted reports whether no writes under it are under
// way any more. It is no error if there are none.
func (s *session) cut(ctx context.Context, own, target uint64) (aborted bool, err error) {
	state, known, err := s.look(ctx)
	switch {
	case err != nil:
		return false, err
	case known && !state.registered(own):
		return false, ErrFenced
	case known && !state.registered(target):
		return false, nil
	}
	err = s.try(ctx, func(t transport) error { return t.preempt(own, target, true) })
	aborted = err == nil
	if errors.Is(err, errRefused) {
		if !s.warn {
			s.warn = true
			s.log.Warn("device cannot abort writes of a fenced host, waiting for them each time", "device", s.path, "err", err)
		}
		err = s.command(ctx, func(t transport) error { return t.preempt(own, target, false) })
	}
	if errors.Is(err, errConflict) {
		return false, s.conflicted(ctx, own, target)
	}
	return aborted, err
}

// conflicted returns why a preempt ended in a conflict: nil if the target was no longer
// registered.
func (s *session) conflicted(ctx context.Context, own, target uint64) error {
	state, known, err := s.look(ctx)
	switch {
	case err != nil:
		return err
	case !known:
		return s.registerKey(ctx, own, true)
	case !state.registered(own):
		return ErrFenced
	case state.registered(target):
		return fmt.Errorf("%w: the device refuses to remove its key", ErrUnconfirmed)
	}
	return nil
}
