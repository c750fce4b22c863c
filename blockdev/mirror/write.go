package mirror

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// errNoVersion is returned for a record that would read as never written.
var errNoVersion = errors.New("it has the zero version")

// WriteCount writes as Write does, and returns the members that had acknowledged all of p when a
// majority had. A member that replaced another one meanwhile is left out, even if the rest is none.
func (s *Set) WriteCount(p []byte, off int64) (acked Positions, err error) {
	r := blockdev.Request{Op: blockdev.OpWrite, N: int64(len(p)), Off: off, Bytes: p}
	err = s.Do(r, func(r blockdev.Request) error {
		if acked, err = s.write(r); err != nil {
			return s.Fail(r, err)
		}
		return nil
	})
	return acked, err
}

// write writes records, one after the other.
func (s *Set) write(r blockdev.Request) (acked Positions, err error) {
	var before [maxMembers]*member
	s.mu.Lock()
	copy(before[:], s.members)
	s.mu.Unlock()
	acked = ^acked
	for at := 0; at < len(r.Bytes); at += s.opts.Stride {
		now, err := s.writeRecord(r.Bytes[at:at+s.opts.Stride], r.Off+int64(at))
		if err != nil {
			return 0, err
		}
		acked &= now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.members {
		if m != before[i] {
			acked &^= At(i)
		}
	}
	return acked, nil
}

// writeRecord writes a record to all members, and returns when a majority acknowledged it. The
// copies of the others are written when their members can.
func (s *Set) writeRecord(block []byte, off int64) (Positions, error) {
	done := make(chan struct{}, 1)
	w := &waiter{done: done}
	if err := s.submit(block, off, w); err != nil {
		return 0, fmt.Errorf("record at %d: %w", off, err)
	}
	select {
	case <-done:
	case <-s.aborted:
		return 0, blockdev.ErrClosed
	}
	if w.acked.Count() <= len(s.members)/2 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return 0, s.noMajority(w.errs)
	}
	return w.acked, nil
}

// submit begins a write of a record on all members.
func (s *Set) submit(block []byte, off int64, w *waiter) error {
	var copies [maxMembers][]byte
	contents := copies[:len(s.members)]
	defer func() {
		for _, unused := range contents {
			if unused != nil {
				pool.Put(unused)
			}
		}
	}()
	for i := range contents {
		contents[i] = pool.Get(len(block))
		copy(contents[i], block)
		s.opts.Codec.Place(contents[i], i)
	}
	v, err := s.opts.Codec.Version(contents[0], off, 0)
	if err == nil && v == (Version{}) {
		err = errNoVersion
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.registers[off]
	if r == nil {
		r = newRegister(off, len(s.members))
		s.registers[off] = r
	}
	if err := r.write(v, contents, w); err != nil {
		return fmt.Errorf("version %d.%d is %w, %d.%d", v.Epoch, v.Counter, err, r.newest.Epoch, r.newest.Counter)
	}
	for _, m := range s.members {
		s.enqueue(m, r)
		s.startWrites(m)
	}
	s.finishWrites(r)
	return nil
}

// enqueue adds a copy that is ready to the list of the member. Called with mu held.
func (s *Set) enqueue(m *member, r *register) {
	c := &r.copies[m.position]
	if !r.ready(m.position) {
		return
	}
	if m.state == Down {
		r.unavailable(m.position, m.err)
	}
	if !c.listed {
		c.listed = true
		m.ready = append(m.ready, r)
	}
}

// nextWrite begins the copy that has been ready the longest, if the member is up. Called with mu
// held.
func (m *member) nextWrite() (r *register, content []byte) {
	for m.state == Up && len(m.ready) > 0 {
		r := m.ready[0]
		m.ready = m.ready[1:]
		r.copies[m.position].listed = false
		if r.ready(m.position) { // it may have been dropped
			m.begins()
			m.writes++
			return r, r.begin(m.position)
		}
	}
	return nil, nil
}

// startWrites begins the copies that are ready, up to the limit. Called with mu held.
func (s *Set) startWrites(m *member) {
	for m.writes < maxWrites {
		r, content := m.nextWrite()
		if r == nil {
			return
		}
		go s.writeMember(m, m.dev, r, content)
	}
}

// writeMember writes copies to a member, one after the other while any is ready.
func (s *Set) writeMember(m *member, dev blockdev.Device, r *register, content []byte) {
	for r != nil {
		err := dev.Write(content, r.off)
		s.mu.Lock()
		err = s.confirm(m, err)
		unused := content
		if m.replaced {
			delete(m.landing, r.off)
		} else {
			unused = s.returned(m, r, err)
		}
		m.writes--
		r, content = m.nextWrite()
		dev = m.dev
		s.changed.Broadcast()
		s.mu.Unlock()
		if unused != nil {
			pool.Put(unused)
		}
	}
}

// returned ends the request of a member for a record, and returns the content if that is no longer needed.
// Called with mu held.
func (s *Set) returned(m *member, r *register, err error) (unused []byte) {
	unused, retry := r.returned(m.position, err)
	if retry {
		s.retryLater(m, r)
	}
	s.enqueue(m, r)
	s.finishWrites(r)
	return unused
}

// retryLater makes a failed copy ready after a pause. Called with mu held.
func (s *Set) retryLater(m *member, r *register) {
	time.AfterFunc(s.opts.Retry, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if m.replaced {
			return
		}
		r.copies[m.position].paused = false
		s.enqueue(m, r)
		s.startWrites(m)
	})
}

// finishWrites lets the decided writes of a record return. Called with mu held.
func (s *Set) finishWrites(r *register) {
	for _, w := range r.decide() {
		w.done <- struct{}{}
	}
}
