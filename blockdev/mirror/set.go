package mirror

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// pool has the buffers of copies.
var pool blockdev.Pool

// Set is a device whose records are on every member. It implements blockdev.Device, with the
// stride as its logical block.
//
// A write of several records is one request for each of them. A write that fails may be continued:
// its copies are written until a newer write, or Drop.
type Set struct {
	blockdev.Handle
	opts    Options
	aborted chan struct{} // closed when Close waits no longer
	closing chan struct{} // closed when no request is begun any more
	owned   sync.WaitGroup

	mu        sync.Mutex // guards the fields below and the members
	changed   sync.Cond  // a write of a copy returned, a member was replaced, or the set is aborted
	members   []*member
	former    []*member     // replaced, with a device that is not closed yet
	replaced  chan struct{} // closed by the next Replace
	back      chan struct{} // closed when the next member comes up
	registers map[int64]*register
	expired   bool    // aborted is closed
	closed    bool    // closing is closed
	faults    []error // of closing members
}

var _ blockdev.Device = (*Set)(nil)

// Open opens the members, which are in the order of their positions. It waits until all are
// checked, but no longer than Options.Timeout, and a tenth of it once a majority is up. A member that is
// missing joins later.
//
// It returns ErrNoMajority, ErrSameDisk, or an error about the number of members.
func Open(members []Member, opts Options) (*Set, error) {
	if n := len(members); n != 3 && n != maxMembers {
		return nil, fmt.Errorf("%d member disks: a set has 3 or 5", n)
	}
	s := &Set{opts: opts, aborted: make(chan struct{}), closing: make(chan struct{}), replaced: make(chan struct{}), back: make(chan struct{}), registers: map[int64]*register{}}
	s.changed.L = &s.mu
	var names []string
	for i, m := range members {
		names = append(names, m.Name)
		s.members = append(s.members, &member{Member: m, position: i, since: time.Now()})
	}
	s.Handle = blockdev.NewHandle(blockdev.Info{
		Path: strings.Join(names, ", "), Members: len(members), LogicalBlock: opts.Stride, PhysicalBlock: opts.Stride,
		Size: opts.Size, ReadOnly: opts.ReadOnly,
	}, s.serve, s.release)
	s.mu.Lock()
	for _, m := range s.members {
		s.startMember(m)
	}
	s.mu.Unlock()
	if err := s.awaitMembers(); err != nil {
		_ = s.Close() // nothing was written: the earlier error is returned
		return nil, fmt.Errorf("open %s: %w", s.Info().Path, err)
	}
	return s, nil
}

// awaitMembers waits as Open does.
func (s *Set) awaitMembers() error {
	expired := false
	timer := time.AfterFunc(s.opts.Timeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		expired = true
		s.changed.Broadcast()
	})
	defer timer.Stop()
	enough, end := false, time.Now().Add(s.opts.Timeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		up, down := 0, 0
		errs := [maxMembers]error{}
		for i, m := range s.members {
			switch m.state {
			case Up:
				up++
			case Down:
				down++
				errs[i] = m.err
			default:
				errs[i] = errNotOpened
			}
			if errors.Is(m.err, ErrSameDisk) {
				return m.err
			}
		}
		switch decided := expired || up+down == len(s.members); {
		case decided && up > len(s.members)/2:
			return nil
		case decided:
			return s.noMajority(errs)
		case up > len(s.members)/2 && !enough:
			enough = true
			timer.Reset(min(s.opts.Timeout/10, time.Until(end)))
		}
		s.changed.Wait()
	}
}

// noMajority returns ErrNoMajority with the errors of members. Called with mu held.
func (s *Set) noMajority(errs [maxMembers]error) error {
	err := ErrNoMajority
	for i, cause := range errs {
		if cause != nil {
			err = fmt.Errorf("%w; %s: %w", err, s.members[i].Name, cause)
		}
	}
	return err
}

func (s *Set) serve(r blockdev.Request) error {
	var err error
	switch r.Op {
	case blockdev.OpRead:
		err = s.read(r, 0, nil)
	case blockdev.OpWrite:
		_, err = s.write(r)
	default:
		err = s.zero(r.Off, r.N)
	}
	if err != nil {
		return s.Fail(r, err)
	}
	return nil
}

// zero zeroes a range on every member. Without one of them it changes nothing: an older copy that
// is left would outrank zeroes.
func (s *Set) zero(off, n int64) error {
	s.mu.Lock()
	s.drop(off, n)
	for s.inFlight(off, n) != 0 {
		if s.expired {
			s.mu.Unlock()
			return blockdev.ErrClosed
		}
		s.changed.Wait()
	}
	var devs []blockdev.Device
	members, replaced := slices.Clone(s.members), s.replaced
	for _, m := range members {
		if m.state != Up {
			s.mu.Unlock()
			return fmt.Errorf("%s is %v: all members are needed", m.Name, m.state)
		}
		devs = append(devs, m.dev)
	}
	maps.DeleteFunc(s.registers, func(at int64, _ *register) bool { return off <= at && at < off+n })
	s.mu.Unlock()
	errs := make(chan error, len(devs))
	for i, dev := range devs {
		go func() {
			err := dev.Zero(off, n)
			if err != nil {
				s.mu.Lock()
				s.recheck(members[i], err)
				s.mu.Unlock()
			}
			errs <- err
		}()
	}
	var err error
	for range devs {
		select {
		case e := <-errs:
			err = errors.Join(err, e)
		case <-replaced:
			return errReplaced
		case <-s.aborted:
			return blockdev.ErrClosed
		}
	}
	return err
}

// Drop gives up the copies in a range that were not begun, on all members. It returns the positions
// with a copy in the range in flight, also to the disk that a vacant one had before (VACANT). It is called before the right to write a record is lost or given away. A copy that is in flight then may land over that of the next writer, and undo a write
// that a majority acknowledged:
//
//	host A               host B               members 0, 1, 2
//	writes 5                                  5 5 -  in flight on 2
//	                     writes 6, not on 0   5 6 6  acknowledged by 1 and 2
//	its copy lands on 2                       5 6 5  a read of 0 and 2 returns 5
func (s *Set) Drop(off, n int64) (inFlight Positions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(off, n)
	return s.inFlight(off, n)
}

// drop implements Drop. Called with mu held.
func (s *Set) drop(off, n int64) {
	for r := range s.within(off, n) {
		for _, unused := range r.drop() {
			pool.Put(unused)
		}
		s.finishWrites(r)
	}
}

// within returns the records in a range that were written. Called with mu held.
func (s *Set) within(off, n int64) iter.Seq[*register] {
	return func(yield func(*register) bool) {
		if n == int64(s.opts.Stride) { // there may be many others
			if r := s.registers[off]; r != nil {
				yield(r)
			}
			return
		}
		for at, r := range s.registers {
			if off <= at && at < off+n && !yield(r) {
				return
			}
		}
	}
}

// inFlight returns the positions with a copy in a range in flight. Called with mu held.
func (s *Set) inFlight(off, n int64) (ps Positions) {
	for r := range s.within(off, n) {
		for i := range r.copies {
			if r.copies[i].inFlight != nil {
				ps |= At(i)
			}
		}
	}
	for i, m := range s.members {
		for b := m.before; b != nil; b = b.before {
			for at := range b.landing {
				if off <= at && at < off+n {
					ps |= At(i)
				}
			}
		}
	}
	return ps
}

// Finish waits up to a time for the copies in a range that are in flight, or that a member has to write and is
// not down. Then it does as Drop does.
func (s *Set) Finish(off, n int64, most time.Duration) (inFlight Positions) {
	expired := false
	timer := time.AfterFunc(most, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		expired = true
		s.changed.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.pending(off, n) && !expired && !s.expired {
		s.changed.Wait()
	}
	s.drop(off, n)
	return s.inFlight(off, n)
}

// pending reports whether a copy in a range is in flight, or waits for a member that is not down. Called
// with mu held.
func (s *Set) pending(off, n int64) bool {
	for r := range s.within(off, n) {
		for i, m := range s.members {
			if r.copies[i].next != nil && m.state != Down {
				return true
			}
		}
	}
	return s.inFlight(off, n) != 0
}

// All returns the set of all members.
func (s *Set) All() Positions { return At(len(s.members)) - 1 }

// Acked returns the version of a record that a member acknowledged last. It returns the zero
// Version if this process wrote none, or if its last write there failed.
func (s *Set) Acked(off int64, position int) Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.registers[off]; r != nil {
		return r.copies[position].acked
	}
	return Version{}
}

// Kept returns the greatest version of a record that a member ever acknowledged to this process. A member
// with an older one lost writes, also if its last write failed.
func (s *Set) Kept(off int64, position int) Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.registers[off]; r != nil {
		return r.copies[position].kept
	}
	return Version{}
}

// Close implements blockdev.Device. It waits for requests, and for copies that the members lack,
// no longer than Options.Timeout, or a tenth of it if the members are read-only, or if a request has been in
// flight for Options.Timeout already. It then returns ErrInFlight, and closes the rest when it can.
func (s *Set) Close() error {
	most := s.opts.Timeout
	hangs := func(m Status) bool { return m.Stats.Oldest >= most }
	if s.opts.ReadOnly || slices.ContainsFunc(s.Members(), hangs) {
		most /= 10
	}
	timer := time.AfterFunc(most, s.abort)
	defer timer.Stop()
	return s.Handle.Close()
}

// AwaitRequests waits until all requests of a set that is closed have returned, also those that
// Close did not wait for, and returns the errors of closing the members.
func (s *Set) AwaitRequests() error {
	s.owned.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.faults...)
}

// abort makes what waits return ErrClosed.
func (s *Set) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.expired {
		s.expired = true
		close(s.aborted)
	}
	s.changed.Broadcast()
}

// release closes the members, when no call is under way.
func (s *Set) release() error {
	s.mu.Lock()
	for s.writesPending() && !s.expired {
		s.changed.Wait()
	}
	s.closed = true
	s.drop(0, s.opts.Size)
	close(s.closing)
	for _, m := range s.members {
		m.queue = nil
		if !m.checking { // otherwise the check closes it
			s.owned.Go(func() { s.closeDevice(m, m.dev) })
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.owned.Wait()
		close(done)
	}()
	select {
	case <-done:
		return s.AwaitRequests()
	case <-s.aborted:
		return fmt.Errorf("close %s: %w for more than %v", s.Info().Path, ErrInFlight, s.opts.Timeout)
	}
}

// writesPending reports whether a copy is in flight, or can be begun. Called with mu held.
func (s *Set) writesPending() bool {
	for _, m := range s.members {
		if m.writes > 0 || m.state == Up && len(m.ready) > 0 {
			return true
		}
	}
	return false
}
