package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Members are the member disks of a lockspace on several, of which a majority suffices. They are counted by
// their positions, from 0.
type Members interface {
	// Disks returns the disk at each position; one without a Path if it is missing.
	Disks() []Disk

	// Has reports whether a disk is still the member at a position. It is false after the disk was replaced.
	Has(position int, disk Disk) bool

	// Refuse is called by Register for a member on which there is no key. Its caller must not use it
	// until Admit returns nil.
	Refuse(position int, why error)
}

// Disk is a device.
type Disk struct {
	Path string
	Name string // the same by each path to it, as blockdev.Info.Disk returns; "" if unknown
}

// Admitter is an Agent that uses the member disks.
type Admitter interface {
	// Admit is called before a member disk is used for the first time, and again after it failed. It
	// returns the errors of Register, and an error before Register. After an error nothing may be written
	// on that disk.
	Admit(ctx context.Context, position int, disk Disk) error
}

// memberDisks has the devices of the member disks with the own key. There are n = 2f+1.
//
// A host that lost its key on f+1 members completes no write that it begins later. It may complete one
// that it began before, if a copy landed before the key was removed, and the last one lands on a member
// that the fencing host could not reach:
//
//	host j                     host i, on 0 and 1        copies of j's record
//	                                                     7  7  7
//	renews: on 0                                         8  7  7
//	                           removes j's key: 0, 1
//	(refused on 1)
//	                           reads 1 and 2: 7          8  7  7
//	                           declares j dead
//	its copy lands on 2: done                            8  7  8
//
// Therefore (ALL) a host is fenced on every member, or on f+1 of them if its lease is over: what is
// acknowledged after the end of a lease revives nothing (FINAL of package lease).
//
// LATE: a key is registered on another member only while f+1 of the others show it, and both hosts look
// last at what the other one changes:
//
//	host j                     host i
//	registers on 2             removes j's key on 0 and 1
//	looks: its key on 0, 1     looks: j's key on 2
//
// One of them sees it. i then begins again, and j does not use the member. f+1 members without j's key
// leave f with it; if the one to register were among those that are counted, it would make f+1 of them.
type memberDisks struct {
	Members
	admitted []atomic.Pointer[device] // by position; nil: the key was not registered
	turn     chan struct{}            // holds one element while keys are registered or removed; guards known
	known    []*device                // by position; nil: none yet. A command that hangs is followed by none
}

// laggards is how long a majority of the members waits for the others.
const laggards = 2 * time.Second

var errNotAdmitted = errors.New("this host has no key there")

func newMemberDisks(m Members) *memberDisks {
	n := len(m.Disks())
	return &memberDisks{Members: m, admitted: make([]atomic.Pointer[device], n), turn: make(chan struct{}, 1), known: make([]*device, n)}
}

func (m *memberDisks) majority() int { return len(m.admitted)/2 + 1 }

// take waits for the turn to register or remove keys.
func (m *memberDisks) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *memberDisks) release() { <-m.turn }

// each calls f for all members at the same time. It returns their errors by position when all have
// returned. With patience above 0 that is how long a majority without errors waits for the others.
func (m *memberDisks) each(ctx context.Context, patience time.Duration, f func(ctx context.Context, i int) error) []error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(m.admitted))
	var done atomic.Int32
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			if errs[i] = f(ctx, i); errs[i] == nil && int(done.Add(1)) == m.majority() && patience > 0 {
				timer := time.AfterFunc(patience, stop)
				context.AfterFunc(ctx, func() { timer.Stop() })
			}
		})
	}
	all.Wait()
	return errs
}

// on is f for the device of a member with the own key.
func (m *memberDisks) on(f func(ctx context.Context, d *device) error) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		d := m.admitted[i].Load()
		if d == nil || !m.Has(i, d.disk()) {
			return fmt.Errorf("member disk %d: %w", i+1, errNotAdmitted)
		}
		if err := d.do(ctx, func() error { return f(ctx, d) }); err != nil {
			return fmt.Errorf("%s: %w", d.path, err)
		}
		return nil
	}
}

// succeeded returns the number of members without an error.
func succeeded(errs []error) (n int) {
	for _, err := range errs {
		if err == nil {
			n++
		}
	}
	return n
}

// tooFew returns the error of members of which too few succeeded. It is ErrFenced only if this host
// cannot have a majority any more.
func (m *memberDisks) tooFew(errs []error, want int) error {
	gone := 0
	for _, err := range errs {
		if errors.Is(err, ErrFenced) {
			gone++
		}
	}
	err := join(errs)
	if errors.Is(err, ErrFenced) && len(errs)-gone >= m.majority() {
		return fmt.Errorf("%w: done on %d member disks, want %d: %v", ErrUnconfirmed, succeeded(errs), want, err)
	}
	return fmt.Errorf("done on %d member disks, want %d: %w", succeeded(errs), want, err)
}

// member returns the device of a member.
func (a *prAgent) member(position int, disk Disk) *device {
	if d := a.members.known[position]; d == nil || d.disk() != disk {
		a.members.known[position] = a.device(disk)
	}
	return a.members.known[position]
}

// registerOn registers the own key on a device of which the keys can be read.
func (a *prAgent) registerOn(ctx context.Context, d *device, resumed bool) error {
	err := d.do(ctx, func() error {
		if err := d.register(ctx, a.cfg.Key, resumed); err != nil {
			return err
		}
		return d.shows(ctx, a.cfg.Key)
	})
	if err != nil {
		return fmt.Errorf("register with %s: %w", d.path, err)
	}
	return nil
}

// shows returns ErrFenced if a key is not registered.
func (d *device) shows(ctx context.Context, key uint64) error {
	state, known, err := d.look(ctx)
	switch {
	case err != nil:
		return err
	case !known:
		return unsupported(errUnreadable)
	case !state.registered(key):
		return ErrFenced
	}
	return nil
}

// registerMembers registers on a majority of the members.
func (a *prAgent) registerMembers(ctx context.Context) error {
	m := a.members
	if err := m.take(ctx); err != nil {
		return err
	}
	defer m.release()
	disks := m.Disks()
	errs := m.each(ctx, laggards, func(ctx context.Context, i int) error {
		if disks[i].Path == "" {
			return fmt.Errorf("member disk %d: it is missing", i+1)
		}
		d := a.member(i, disks[i])
		if err := a.registerOn(ctx, d, a.cfg.Resumed); err != nil {
			return err
		}
		m.admitted[i].Store(d)
		return nil
	})
	if succeeded(errs) < m.majority() {
		return m.tooFew(errs, m.majority())
	}
	for i, err := range errs {
		if err != nil {
			m.admitted[i].Store(nil)
			m.Refuse(i, err)
		}
	}
	return nil
}

// Admit implements Admitter (LATE).
func (a *prAgent) Admit(ctx context.Context, position int, disk Disk) error {
	m := a.members
	if err := m.take(ctx); err != nil {
		return err
	}
	defer m.release()
	if d := m.admitted[position].Load(); d != nil && d.disk() == disk {
		return nil
	}
	m.admitted[position].Store(nil)
	others := 0
	for i := range m.admitted {
		if m.admitted[i].Load() != nil {
			others++
		}
	}
	if others < m.majority() {
		return fmt.Errorf("register with %s: this host has a key on %d other member disks, want %d", disk.Path, others, m.majority())
	}
	d := a.member(position, disk)
	if err := a.registerOn(ctx, d, false); err != nil {
		return err
	}
	shown := m.each(ctx, 0, m.on(func(ctx context.Context, d *device) error { return d.shows(ctx, a.cfg.Key) }))
	if succeeded(shown) < m.majority() {
		err := d.do(ctx, func() error { return d.unregister(ctx, a.cfg.Key) })
		return join([]error{fmt.Errorf("register with %s: other hosts may fence this one: %w", disk.Path, m.tooFew(shown, m.majority())), err})
	}
	m.admitted[position].Store(d)
	return nil
}

// fenceOnMembers fences a target on the members (ALL).
func (a *prAgent) fenceOnMembers(ctx context.Context, t Target) error {
	m, want, patience := a.members, len(a.members.admitted), time.Duration(0)
	if t.LeaseOver {
		want, patience = m.majority(), laggards
	}
	errRegistered := fmt.Errorf("%w: it has registered again", ErrUnconfirmed)
	for {
		cut := m.each(ctx, patience, m.on(func(ctx context.Context, d *device) error { return d.fence(ctx, a.cfg.Key, t.Key, a.cfg.Drain) }))
		if succeeded(cut) < want {
			return m.tooFew(cut, want)
		}
		again := false
		seen := m.each(ctx, patience, func(ctx context.Context, i int) error { // LATE
			if cut[i] != nil {
				return cut[i]
			}
			return m.on(func(ctx context.Context, d *device) error {
				if err := d.shows(ctx, t.Key); !errors.Is(err, ErrFenced) {
					if err == nil {
						err = errRegistered
					}
					return err
				}
				return nil
			})(ctx, i)
		})
		for _, err := range seen {
			again = again || errors.Is(err, errRegistered)
		}
		switch {
		case succeeded(seen) >= want:
			return nil
		case !again || ctx.Err() != nil:
			return m.tooFew(seen, want)
		}
	}
}

// unregisterMembers removes the own key from the members.
func (a *prAgent) unregisterMembers(ctx context.Context) error {
	m := a.members
	if err := m.take(ctx); err != nil {
		return err
	}
	defer m.release()
	errs := m.each(ctx, 0, func(ctx context.Context, i int) error {
		if m.admitted[i].Load() == nil {
			return nil
		}
		err := m.on(func(ctx context.Context, d *device) error { return d.unregister(ctx, a.cfg.Key) })(ctx, i)
		m.admitted[i].Store(nil)
		return err
	})
	return join(errs)
}
