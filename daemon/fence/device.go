package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// What a command on a device ended with, if not well. Everything else that a transport returns is final.
var (
	errConflict = errors.New("reservation conflict")
	errRefused  = errors.New("refused") // this device, or this way to it, does not know the command or a part of it
	errAgain    = errors.New("the device was not ready")
)

// transport sends the commands that change reservations. Each method returns errConflict, errRefused or errAgain, or
// wraps an errno or what the device said.
type transport interface {
	// register replaces the own key old by new. With ignore, whatever key there was or none; without it, errConflict
	// if old is not what is registered. new 0 unregisters.
	register(old, new uint64, ignore bool) error

	// reserve takes a reservation of type WriteExclusiveAllRegistrants, or finds itself its holder. Some targets
	// answer errConflict for another registrant's reservation although all are its holders.
	reserve(key uint64) error

	// preempt removes all registrations of target, with abort also what they have under way. It returns errConflict
	// if target is not registered, or own is not.
	preempt(own, target uint64, abort bool) error

	String() string
}

// reader tells the state of a device. It returns errRefused or errAgain, or wraps an errno or what the device said.
type reader interface {
	state() (State, error)
}

// handle is a device, opened.
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

	busy chan struct{} // holds one element while a session is open; guards way and warned
	way  string        // the transport that has worked, "": none yet
	warn bool          // it was told that the device does not abort
}

func newDevice(path string, open opener, log *slog.Logger) *device {
	return &device{path: path, open: open, log: log, busy: make(chan struct{}, 1)}
}

// session is a device while it is open, which is no longer than the task wants: a path that has come to mean another
// disk shows by the own key, which is not registered there.
type session struct {
	*device
	*handle
}

// do opens the device and does f. It returns when ctx ends; a command that the kernel holds then goes on by itself,
// nothing is sent after it, and the device is free for the next session when it returns.
func (d *device) do(ctx context.Context, f func(context.Context, *session) error) error {
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("an earlier command is still under way: %w", ctx.Err())
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-d.busy }()
		h, err := d.open(d.path)
		if err != nil {
			done <- err
			return
		}
		err = f(ctx, &session{device: d, handle: h})
		h.close()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// command does f with the transport that worked on this device before; the first time, or if that does not know the
// command, with the first that does.
func (s *session) command(ctx context.Context, f func(transport) error) error {
	order := slices.Clone(s.transports)
	slices.SortStableFunc(order, func(a, b transport) int {
		switch s.way {
		case a.String():
			return -1
		case b.String():
			return 1
		}
		return 0
	})
	var errs []error
	for _, t := range order {
		err := retry(ctx, func() error { return f(t) })
		if err == nil || errors.Is(err, errConflict) {
			s.way = t.String()
			return err
		}
		errs = append(errs, fmt.Errorf("by %s: %w", t, err))
		// Kernels before 6.4 tell a refusal as they tell a device that is not ready. Of the transport that has
		// worked before that is to be believed, of one that is tried because that one refuses it is not.
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
func join(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w; %w", errs[0], join(errs[1:]))
}

// retry does f until it says something else than errAgain. Unit attentions, of which a device may have one for each
// thing that happened to it, are over with the answer that tells them.
func retry(ctx context.Context, f func() error) error {
	const attempts = 10
	for i := range attempts {
		if err := pause(ctx, time.Duration(i*i)*5*time.Millisecond); err != nil {
			return err
		}
		err := f()
		if !errors.Is(err, errAgain) || i == attempts-1 {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d == 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unsupported adds what an operator can do about it.
func unsupported(err error) error {
	return fmt.Errorf("%w: %w; give a whole SCSI or NVMe disk or a multipath device whose target has them, or use the exec agent or another recovery policy", ErrUnsupported, err)
}

// look reads the state, if there is a way to; known tells whether there is.
func (s *session) look(ctx context.Context) (state State, known bool, err error) {
	for _, r := range s.readers {
		err := retry(ctx, func() (err error) {
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
		_ = s.unregister(ctx, key) // nothing was written under this key yet; the first error is the one to tell
	}
	return err
}

// registerKey registers the own key, or finds it registered.
func (s *session) registerKey(ctx context.Context, key uint64, registered bool) error {
	old, ignore := uint64(0), true
	if registered {
		old, ignore = key, false
	}
	err := s.command(ctx, func(t transport) error { return t.register(old, key, ignore) })
	if errors.Is(err, errConflict) && !registered {
		// NVMe registers or replaces, and Linux chooses between them by whether there is an old key.
		err = s.command(ctx, func(t transport) error { return t.register(key, key, true) })
	}
	switch {
	case errors.Is(err, errConflict) && registered:
		return ErrFenced
	case errors.Is(err, errRefused):
		return unsupported(err)
	}
	return err
}

func (s *session) unregister(ctx context.Context, key uint64) error {
	err := s.command(ctx, func(t transport) error { return t.register(key, 0, false) })
	switch {
	case errors.Is(err, errConflict):
		return nil
	case errors.Is(err, errRefused):
		return unsupported(err)
	}
	return err
}

// inForce makes sure that the reservation is in force and the own key registered, as far as that can be read.
func (s *session) inForce(ctx context.Context, own uint64) error {
	for range 3 { // a reservation that ends between two steps, by its last registrant's leave, is taken anew
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
		case errors.Is(err, errRefused):
			return unsupported(err)
		case errors.Is(err, errConflict) && known:
			// Another host was faster, or the own key was removed: the next look tells.
		case errors.Is(err, errConflict):
			if err := s.registerKey(ctx, own, true); err != nil {
				return err
			}
			return fmt.Errorf("%w: in a way that cannot be read", ErrReserved)
		case err != nil:
			return err
		case !known:
			return nil
		}
	}
	return fmt.Errorf("%w: the reservation does not last", ErrUnconfirmed)
}

func reservedBy(s State) error {
	return fmt.Errorf("%w: %s, want %s; whatever reserved it uses it too, or has left it behind: have that release it, or clear it (sg_persist --clear)",
		ErrReserved, s.Type, WriteExclusiveAllRegistrants)
}

// fence removes the key of a target. In this order: the reservation, without which an unregistered host may write;
// the key; and then a look, for a device that says yes and does nothing.
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
			if err := pause(ctx, drain); err != nil {
				return fmt.Errorf("%w: writes that the device had begun were not waited for: %w", ErrUnconfirmed, err)
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
		// Some targets drop the reservation with the registration of who made it: the target could write again.
		if err := s.inForce(ctx, own); err != nil {
			return err
		}
		aborted = false
	}
}

// cut removes the registrations of a key; aborted tells whether nothing of it is under way any more. It is no error
// that there is none.
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
	err = s.command(ctx, func(t transport) error { return t.preempt(own, target, true) })
	aborted = err == nil
	if errors.Is(err, errRefused) {
		if !s.warn {
			s.warn = true
			s.log.Warn("device does not abort what a fenced host has under way, waiting for that each time", "device", s.path, "err", err)
		}
		err = s.command(ctx, func(t transport) error { return t.preempt(own, target, false) })
	}
	switch {
	case errors.Is(err, errRefused):
		return false, unsupported(err)
	case errors.Is(err, errConflict):
		return false, s.conflicted(ctx, own, target)
	}
	return aborted, err
}

// conflicted tells why a preempt ended in a conflict: nil if the target was not registered any more.
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
