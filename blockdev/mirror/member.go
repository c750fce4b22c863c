package mirror

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// maxReads and maxWrites are the limits of requests in flight on one member. Each occupies a
// thread, on a hung member until it returns. A read that waits for its turn is given up when the
// other members sufficed. Together they are less than the queue of a disk in the kernel has room for, usually
// 64 at least: on a hung member, further requests would keep the process from ending.
const maxReads, maxWrites = 24, 24

var errNotOpened = errors.New("is still being opened")

// State is the state of a member.
type State uint8

// The states of a member.
const (
	Checking State = iota // being opened, or checked after an error: requests wait
	Up                    // it is read and written
	Down                  // missing, failed or not the right disk: requests fail
)

func (st State) String() string { return [...]string{"checking", "up", "down"}[st] }

// Status is what is known of a member.
type Status struct {
	Name  string
	ID    [16]byte // zero if the position is vacant
	State State
	Since time.Time // when it came up, or ceased to be up
	Err   error     // the last one, also of a member that is up; nil if none
	Stats blockdev.Stats

	Failures int // number of its failed requests
	Behind   int // number of records that this process wrote, and that it lacks
}

// member is a disk of a set. Its fields are guarded by Set.mu.
type member struct {
	Member
	position int
	dev      blockdev.Device // nil if not open; only a check changes it
	disk     string          // see blockdev.Info.Disk; "" once it is closed
	state    State
	since    time.Time
	err      error // the last one
	failures int   // number of failed requests
	checking bool  // a check runs, also in state Down
	replaced bool  // it is no member any more

	before  *member        // the one that was replaced, if the position is vacant: VACANT
	landing map[int64]bool // addresses of the records with a copy in flight when it was replaced, until that returns

	heard  time.Time // when it answered last, or when a request began with none in flight: HUNG
	doubts int       // number of times that HUNG asked for a check
	passed int       // doubts when the last check that passed began
	lost   int       // number of checks that did not pass

	reads  int         // number in flight
	queue  []*reading  // reads that wait
	writes int         // number in flight
	ready  []*register // records with a copy that can be begun
}

// Members returns the state of the members.
func (s *Set) Members() []Status {
	list, devs := make([]Status, len(s.members)), make([]blockdev.Device, len(s.members))
	s.mu.Lock()
	for i, m := range s.members {
		list[i] = Status{Name: m.Name, ID: m.ID, State: m.state, Since: m.since, Err: m.err, Failures: m.failures}
		devs[i] = m.dev
	}
	for _, r := range s.registers {
		for i := range list {
			if r.behind(i) {
				list[i].Behind++
			}
		}
	}
	s.mu.Unlock()
	for i, dev := range devs {
		if dev != nil {
			list[i].Stats = dev.Stats()
		}
	}
	return list
}

// Recheck makes a member count for nothing until Options.Check passes again. A caller that found
// its own record on it gone calls this with what it found.
func (s *Set) Recheck(position int, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recheck(s.members[position], reason)
}

// recheck checks a member again after an error of one of its requests. Called with mu held.
func (s *Set) recheck(m *member, err error) {
	m.failures++
	s.checkAgain(m, err)
}

// checkAgain makes a member that is up wait for a check. Called with mu held.
func (s *Set) checkAgain(m *member, err error) {
	if m.state == Up && !s.closed {
		s.setState(m, Checking)
		m.err = err
		s.startCheck(m)
	}
}

// begins notes that a request begins. Called with mu held.
func (m *member) begins() {
	if m.reads+m.writes == 0 {
		m.heard = time.Now()
	}
}

// confirm returns the error of a request that returned, or nil once its answer counts: HUNG. Called with mu
// held, which it releases while it waits for a check. To all else the request is in flight meanwhile.
func (s *Set) confirm(m *member, err error) error {
	silence := time.Since(m.heard)
	m.heard = time.Now()
	if s.opts.Hung != 0 && silence > s.opts.Hung {
		m.doubts++
		if err == nil {
			s.checkAgain(m, fmt.Errorf("it gave no answer for %v", silence.Round(time.Millisecond)))
		}
	}
	for doubts := m.doubts; err == nil && !m.replaced && m.passed < doubts; {
		switch {
		case m.state == Down:
			err = m.err
		case s.closed:
			err = blockdev.ErrClosed
		default:
			s.changed.Wait()
		}
	}
	if err != nil {
		s.recheck(m, err)
	}
	return err
}

// lookEvery is the time between two looks at a member.
const lookEvery = 3 * time.Second

// startMember starts the check of a new member, and the looks at it. Called with mu held.
func (s *Set) startMember(m *member) {
	s.startCheck(m)
	if s.opts.Look != nil {
		s.owned.Go(func() { s.watch(m) })
	}
}

// watch looks at a member while it is up, until it is replaced or the set is closed. It has one look in flight: one
// that hangs delays nothing, except as another read of that disk does.
func (s *Set) watch(m *member) {
	for {
		select {
		case <-time.After(lookEvery):
		case <-s.closing:
			return
		}
		s.mu.Lock()
		dev, state, replaced, failures := m.dev, m.state, m.replaced, m.failures
		s.mu.Unlock()
		switch {
		case replaced:
			return
		case state == Up:
			if err := s.opts.Look(m.position, dev); err != nil {
				s.distrust(m, failures, err)
			}
		}
	}
}

// distrust checks a member after a look, unless an error has made that necessary since the look began.
func (s *Set) distrust(m *member, failures int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if failures == m.failures {
		s.recheck(m, err)
	}
}

// startCheck starts the check of a member that has none. Called with mu held.
func (s *Set) startCheck(m *member) {
	m.checking = true
	s.owned.Go(func() {
		for s.check(m) {
			select {
			case <-time.After(s.opts.Retry):
			case <-s.closing:
			}
		}
	})
}

// check checks a member until it is up, down or closed: IDENTITY. It reports whether it is down,
// to be checked again after a pause.
func (s *Set) check(m *member) (again bool) {
	s.mu.Lock()
	dev, failures, doubts, closed := m.dev, m.failures, m.doubts, s.closed || m.replaced
	s.mu.Unlock()
	var err error
	if dev == nil && !closed {
		dev, err = m.Open()
	}
	if err == nil && !closed {
		err = s.verify(m, dev)
	}
	s.mu.Lock()
	switch {
	case s.closed || m.replaced:
		m.checking = false
	case err != nil:
		m.dev, again = nil, true
		s.setDown(m, err)
	case failures != m.failures || doubts != m.doubts: // an error or a silence since the check began
		m.dev = dev
		s.mu.Unlock()
		return s.check(m)
	default:
		m.dev, dev, m.checking, m.passed, m.heard = dev, nil, false, doubts, time.Now()
		s.setUp(m)
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	if dev != nil {
		s.closeDevice(m, dev)
	}
	return again
}

// closeDevice closes a device. It waits for the requests in flight.
func (s *Set) closeDevice(m *member, dev blockdev.Device) {
	err := dev.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.faults = append(s.faults, fmt.Errorf("close %s: %w", m.Name, err))
	}
	m.disk = ""
	s.former = slices.DeleteFunc(s.former, func(other *member) bool { return other == m })
}

// verify returns an error if dev cannot be the member, or is not: SAME-DISK.
func (s *Set) verify(m *member, dev blockdev.Device) error {
	info := dev.Info()
	if s.opts.Stride%info.LogicalBlock != 0 || info.Size < s.opts.Size {
		return fmt.Errorf("the disk has %d bytes in blocks of %d, the set needs %d in blocks of %d",
			info.Size, info.LogicalBlock, s.opts.Size, s.opts.Stride)
	}
	if err := s.claimDisk(m, info.Disk()); err != nil {
		return err
	}
	return s.opts.Check(m.position, dev)
}

// claimDisk notes which disk a member is. It returns an error if a request of another may be in flight there.
func (s *Set) claimDisk(m *member, disk string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.disk = disk
	if disk == "" {
		return nil
	}
	for _, other := range s.members {
		if other != m && other.disk == disk {
			return fmt.Errorf("%w: %s and %s are %s; name each disk once", ErrSameDisk, other.Name, m.Name, disk)
		}
	}
	for _, other := range s.former {
		if other != m && other.disk == disk {
			return fmt.Errorf("%w: %s is %s, the replaced %s, whose requests have not returned", ErrSameDisk, m.Name, disk, other.Name)
		}
	}
	return nil
}

// setState sets the state of a member, and since when it is up, or is not. Called with mu held.
func (s *Set) setState(m *member, to State) {
	from := m.state
	if m.state = to; from == to {
		return
	}
	if from == Up || to == Up {
		m.since = time.Now()
	}
	s.announce()
}

// announce calls Options.Changed.
func (s *Set) announce() {
	if s.opts.Changed != nil {
		go s.opts.Changed()
	}
}

// setDown makes the requests of a member fail. Called with mu held.
func (s *Set) setDown(m *member, err error) {
	s.setState(m, Down)
	m.err = err
	m.lost++
	for _, rd := range m.queue {
		rd.answers <- answer{member: m.position, err: err}
	}
	m.queue = nil
	for _, r := range s.registers {
		r.unavailable(m.position, err)
		s.finishWrites(r)
	}
}

// setUp makes a member take part, and begins what waits for it. Called with mu held.
func (s *Set) setUp(m *member) {
	s.setState(m, Up)
	close(s.back)
	s.back = make(chan struct{})
	queue := m.queue
	m.queue = nil
	for _, rd := range queue {
		s.beginRead(m, rd)
	}
	s.startWrites(m)
}
