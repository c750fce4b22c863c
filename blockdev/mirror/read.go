package mirror

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// unreadable fills the block of a record that has no majority of valid copies. It is no record and
// no zeroes.
const unreadable = "no majority of the member disks has a valid copy of this record\n"

// Copy is what one member showed of one record.
type Copy struct {
	Record   int // of the records that were read
	Position int // of the member
	Version  Version
	Block    []byte // valid during the call
	Err      error  // why there is no valid copy; nil if there is one
}

// reading is a read of the set as its members see it.
type reading struct {
	off     int64
	n       int
	answers chan answer // has room for one of each member
	done    bool        // the caller has returned; guarded by Set.mu
}

// answer is the result of one member.
type answer struct {
	member int
	buf    []byte // nil after an error
	err    error
}

// ReadCopies reads as Read does, and calls visit for each copy that was seen. After the majority it
// waits for the members in need as well, but no longer than Options.Patience. p gets the greatest
// version that was seen. There is no call for a member that did not answer, or
// for a replaced one. An error is returned after the calls.
func (s *Set) ReadCopies(p []byte, off int64, need Positions, visit func(Copy)) error {
	r := blockdev.Request{Op: blockdev.OpRead, N: int64(len(p)), Off: off, Bytes: p}
	return s.Do(r, func(r blockdev.Request) error {
		if err := s.read(r, need, visit); err != nil {
			return s.Fail(r, err)
		}
		return nil
	})
}

// read reads a range from all members, and returns when every record has a majority of valid
// copies. A record that has none, although all members answered, reads as unreadable. If fewer than
// a majority answer, read waits for them.
func (s *Set) read(r blockdev.Request, need Positions, visit func(Copy)) error {
	for {
		if err := s.tryRead(r, need, visit); err != errReplaced {
			return err
		}
	}
}

// tryRead reads as read does, or returns errReplaced (REPLACED, IDENTITY). A member that failed is read again when a
// member is back, with pauses of Options.Retry: a bad sector fails each time, and its member is back each time.
func (s *Set) tryRead(r blockdev.Request, need Positions, visit func(Copy)) error {
	q := newPoll(len(s.members), len(r.Bytes)/s.opts.Stride)
	rd := &reading{off: r.Off, n: len(r.Bytes), answers: make(chan answer, len(s.members))}
	s.mu.Lock()
	replaced, back := s.replaced, s.back
	var lost [maxMembers]int
	for i, m := range s.members {
		lost[i] = m.lost
		s.beginRead(m, rd)
	}
	s.mu.Unlock()
	var bufs [maxMembers][]byte
	defer func() { s.endRead(rd, &bufs) }()
	var late, again <-chan time.Time
	var next time.Time // when members that failed are read again at the earliest
	lateForNeed := false
	for state := pollWaits; state == pollWaits || state == pollSettled && !q.has(need) && !lateForNeed; state = q.state() {
		if late == nil && q.enough() {
			timer := time.NewTimer(s.opts.Patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case a := <-rd.answers:
			bufs[a.member] = a.buf
			q.answer(a.member, a.err)
			s.count(q, r, a, visit != nil)
			continue
		case <-back:
			again = time.After(time.Until(next))
			s.mu.Lock()
			back = s.back
			s.mu.Unlock()
			continue
		case <-again:
			if len(rd.answers) > 0 { // an error from before the member was back
				again = time.After(0)
				continue
			}
			again, next = nil, time.Now().Add(s.opts.Retry)
			s.readFailed(q, rd, &lost)
			continue
		case <-late:
			if rest := s.opts.RecordPatience - s.opts.Patience; q.open > 0 && rest > 0 && !lateForNeed {
				late, lateForNeed = time.After(rest), true
				continue
			}
		case <-replaced:
		case <-s.aborted:
			return blockdev.ErrClosed
		}
		break
	}
	select {
	case <-replaced:
		return errReplaced
	default:
	}
	if s.lostSince(q, &lost) {
		return errReplaced
	}
	if visit != nil {
		s.visit(q, r, &bufs, visit)
	}
	if q.state() == pollImpossible {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.noMajority(q.errs)
	}
	return s.complete(q, r)
}

// readFailed reads the members again that failed in a read and are up. The answers of the others count: a disk
// with a bad sector may be back before these.
func (s *Set) readFailed(q *poll, rd *reading, lost *[maxMembers]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.members {
		if q.failed.Has(i) && m.state == Up {
			q.failed &^= At(i)
			lost[i] = m.lost
			s.beginRead(m, rd)
		}
	}
}

// lostSince reports whether a member did not pass a check after its read began, and answered: IDENTITY. The read may
// have waited for others since.
func (s *Set) lostSince(q *poll, lost *[maxMembers]int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.members {
		if q.answered.Has(i) && m.lost != lost[i] {
			return true
		}
	}
	return false
}

// count counts the copies of a member that answered, and puts the newest into the result.
func (s *Set) count(q *poll, r blockdev.Request, a answer, all bool) {
	if a.err != nil {
		return
	}
	for i := range q.records {
		if !all && !q.lacks(i) {
			continue
		}
		at := i * s.opts.Stride
		block := a.buf[at : at+s.opts.Stride]
		if v, err := s.opts.Codec.Version(block, r.Off+int64(at), a.member); err == nil && q.count(i, v) {
			copy(r.Bytes[at:], block)
		}
	}
}

// visit calls visit for every copy of the members that answered or failed.
func (s *Set) visit(q *poll, r blockdev.Request, bufs *[maxMembers][]byte, visit func(Copy)) {
	for i := range q.records {
		for m, buf := range bufs {
			c := Copy{Record: i, Position: m, Err: q.errs[m]}
			if buf != nil {
				at := i * s.opts.Stride
				c.Block = buf[at : at+s.opts.Stride]
				c.Version, c.Err = s.opts.Codec.Version(c.Block, r.Off+int64(at), m)
			}
			if buf != nil || c.Err != nil {
				visit(c)
			}
		}
	}
}

// complete completes the records without a majority. If a member failed to read the whole range,
// because of one bad sector perhaps, they are read one by one, at the same time: another member may hang, and
// each of these reads waits for it.
func (s *Set) complete(q *poll, r blockdev.Request) error {
	if q.open == 0 {
		return nil
	}
	alone := q.errs != [maxMembers]error{} && len(q.records) > 1
	errs := make([]error, len(q.records))
	var all sync.WaitGroup
	for i := range q.records {
		if !q.lacks(i) {
			continue
		}
		at := i * s.opts.Stride
		block := r.Bytes[at : at+s.opts.Stride]
		if !alone {
			lose(block)
			continue
		}
		all.Go(func() {
			one := blockdev.Request{Op: r.Op, N: int64(len(block)), Off: r.Off + int64(at), Bytes: block}
			if errs[i] = s.read(one, 0, nil); errors.Is(errs[i], ErrNoMajority) {
				lose(block)
				errs[i] = nil
			}
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

// lose fills a block as unreadable.
func lose(block []byte) { copy(block, bytes.Repeat([]byte(unreadable), len(block)/len(unreadable)+1)) }

// beginRead begins a read of a member, now or when it can. Called with mu held.
func (s *Set) beginRead(m *member, rd *reading) {
	switch {
	case m.state == Down:
		rd.answers <- answer{member: m.position, err: m.err}
	case m.state == Up && m.reads < maxReads:
		m.begins()
		m.reads++
		go s.readMember(m, m.dev, rd, m.failures)
	default:
		m.queue = append(m.queue, rd)
	}
}

// readMember reads a member, for one read after the other while any waits. failures is the number
// of the member's failures when the read was begun.
func (s *Set) readMember(m *member, dev blockdev.Device, rd *reading, failures int) {
	for rd != nil {
		buf := pool.Get(rd.n)
		err := dev.Read(buf, rd.off)
		s.mu.Lock()
		err = s.confirm(m, err)
		unused := s.deliver(m, rd, answer{m.position, buf, err}, failures)
		m.reads--
		rd = nil
		if m.state == Up && len(m.queue) > 0 {
			rd, dev, failures = m.queue[0], m.dev, m.failures
			m.queue = slices.Delete(m.queue, 0, 1)
			m.begins()
			m.reads++
		}
		s.mu.Unlock()
		if unused {
			pool.Put(buf)
		}
	}
}

// deliver hands an answer to the caller of a read, and reports whether its buffer is not needed.
// An answer from before the last check counts for nothing: the member is read again. Called with
// mu held.
func (s *Set) deliver(m *member, rd *reading, a answer, failures int) (unused bool) {
	switch {
	case rd.done:
		return true
	case a.err != nil:
		a.buf = nil
		rd.answers <- a
		return true
	case failures != m.failures:
		s.beginRead(m, rd)
		return true
	}
	rd.answers <- a
	return false
}

// endRead ends a read whose caller returns.
func (s *Set) endRead(rd *reading, bufs *[maxMembers][]byte) {
	s.mu.Lock()
	rd.done = true
	for _, m := range s.members {
		m.queue = slices.DeleteFunc(m.queue, func(other *reading) bool { return other == rd })
	}
	s.mu.Unlock()
	for len(rd.answers) > 0 { // nothing is added any more
		if a := <-rd.answers; a.buf != nil {
			pool.Put(a.buf)
		}
	}
	for _, buf := range bufs {
		if buf != nil {
			pool.Put(buf)
		}
	}
}
