package mirror

import (
	"errors"
	"fmt"
	"time"
)

// errReplaced is returned for requests that must be repeated with the new member.
var errReplaced = errors.New("a member disk was replaced: try again")

// Replace makes m the member at a position. It does not wait for the disk before, which is closed when its
// requests returned. From the return of Replace on, nothing that this disk returns counts: REPLACED. Info keeps the names of Open. A closed set is not changed.
//
// The set writes to m what any member lacks, and no more. A caller that replaces a disk vacates the position,
// reads every record, writes what it read to the new disk, and then makes that the member:
//
//	host                        members 0, 1, 2    new disk
//	writes 5, not on 2          5 5 4
//	vacates 1, reads, copies    5 - 4              5
//	makes the new disk 1        5 5 4
//
// Without the copy, members 1 and 2 would be a majority that misses 5.
func (s *Set) Replace(position int, m Member) {
	next := map[*register]placed{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for more := s.copyLacked(next); len(more) > 0; more = s.copyLacked(next) {
		s.mu.Unlock()
		for _, content := range more {
			s.opts.Codec.Place(content, position)
		}
		s.mu.Lock()
	}
	if s.closed {
		return
	}
	old := s.members[position]
	s.retire(old)
	now := &member{Member: m, position: position, since: time.Now()}
	if m.ID == [16]byte{} {
		now.before = old
	}
	s.members[position] = now
	err := fmt.Errorf("it replaced %s", old.Name)
	for _, r := range s.registers {
		var content []byte
		if r.lacked() != nil {
			content = next[r].content
		}
		if unused := r.replace(position, content, err); unused != nil {
			pool.Put(unused)
		}
		s.enqueue(now, r)
		s.finishWrites(r)
	}
	close(s.replaced)
	s.replaced = make(chan struct{})
	s.changed.Broadcast()
	s.announce()
	s.startMember(now)
}

// placed is a content for a new member.
type placed struct {
	version Version
	content []byte
}

// copyLacked copies the contents that a member lacks and that are not in next, adds them there, and returns
// them. They are not yet placed. Called with mu held.
func (s *Set) copyLacked(next map[*register]placed) (more [][]byte) {
	for _, r := range s.registers {
		lacked := r.lacked()
		if p, ok := next[r]; lacked == nil || ok && p.version == r.newest {
			continue
		}
		content := pool.Get(len(lacked))
		copy(content, lacked)
		next[r] = placed{r.newest, content}
		more = append(more, content)
	}
	return more
}

// retire ends a member: it begins no request any more, and its device is closed. Called with mu held.
func (s *Set) retire(m *member) {
	m.state, m.replaced, m.queue, m.ready, m.landing = Down, true, nil, nil, map[int64]bool{}
	for off, r := range s.registers {
		if r.copies[m.position].inFlight != nil {
			m.landing[off] = true
		}
	}
	if m.disk != "" {
		s.former = append(s.former, m)
	}
	if !m.checking { // otherwise the check closes it
		s.owned.Go(func() { s.closeDevice(m, m.dev) })
	}
}
