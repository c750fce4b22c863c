package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// word is what a host says to another in a slot's value, with value token 0: it is nobody's value.
//
//	bytes  | field
//	-------|----------------------------------------------------------------------
//	 0 - 3 | magic "BKMT"
//	 4 - 7 | round, 0 before the first
//	 8 -15 | nonce: this meeting, as the writer calls it
//	16 -23 | echo: the nonce of the other host that was read last, 0 for none
//	24 -27 | rounds that the writer wants
type word struct {
	round, rounds int
	nonce, echo   uint64
}

const (
	wordMagic  = "BKMT"
	wordRound  = 4
	wordNonce  = 8
	wordEcho   = 16
	wordRounds = 24
	wordEnd    = 28
)

func (w word) encode() []byte {
	b := make([]byte, wordEnd)
	copy(b, wordMagic)
	binary.LittleEndian.PutUint32(b[wordRound:], uint32(w.round))
	binary.LittleEndian.PutUint64(b[wordNonce:], w.nonce)
	binary.LittleEndian.PutUint64(b[wordEcho:], w.echo)
	binary.LittleEndian.PutUint32(b[wordRounds:], uint32(w.rounds))
	return b
}

func decodeWord(b []byte) (w word, ok bool) {
	if len(b) != wordEnd || string(b[:wordRound]) != wordMagic {
		return word{}, false
	}
	return word{
		round: int(binary.LittleEndian.Uint32(b[wordRound:])), rounds: int(binary.LittleEndian.Uint32(b[wordRounds:])),
		nonce: binary.LittleEndian.Uint64(b[wordNonce:]), echo: binary.LittleEndian.Uint64(b[wordEcho:]),
	}, true
}

// meetEnd says why a meeting came to no good end.
type meetEnd struct {
	outcome MeetOutcome
	why     string
}

func (e meetEnd) Error() string { return e.why }

// The two slots of each host.
const (
	slotX = iota
	slotY
)

var slotNames = [2]string{"x", "y"}

// meeting is one host's part in a meeting. One goroutine uses it.
type meeting struct {
	ctx    context.Context
	d      *Daemon
	o      MeetOptions
	locks  [2]*lock
	nonce  uint64
	theirs uint64 // the other host's nonce, once seen
	rounds int

	seen   [2]seenSlot   // the other host's
	done   int           // rounds
	trip   time.Duration // the last of trips
	trips  probe.Stopwatch
	stale  int
	detail string // of the first stale read
}

// seenSlot is what was read of a slot so far: the highest sequence of every incarnation, and which came last.
type seenSlot struct {
	highest map[uint64]uint64
	current uint64
}

func (m *meeting) run() (err error) {
	defer func() { err = errors.Join(err, m.clear()) }()
	if err := m.greet(); err != nil {
		return err
	}
	if m.d.mem.id() < m.o.Host {
		return m.lead()
	}
	return m.follow()
}

// lead speaks first, and knows at the end that it was heard.
func (m *meeting) lead() error {
	for n := 1; n <= m.rounds; n++ {
		begun := time.Now()
		if err := m.say(n); err != nil {
			return err
		}
		if err := m.hear(n); err != nil {
			return err
		}
		m.tripped(n, time.Since(begun))
		m.done = n
	}
	return nil
}

// follow speaks when it is spoken to, and waits at the end until it was heard.
func (m *meeting) follow() error {
	var begun time.Time
	for n := 1; n <= m.rounds; n++ {
		if err := m.hear(n); err != nil {
			return err
		}
		if n > 1 {
			m.tripped(n, time.Since(begun))
		}
		begun = time.Now()
		if err := m.say(n); err != nil {
			return err
		}
		m.done = n
	}
	return m.bye()
}

// maxDwell bounds how long a host thinks before it reads x.
const maxDwell = 2 * time.Second

// dwell lets some time pass between y and x in every fourth round, up to half of what a round takes. Where reads come
// from a cache that forgets after a time, rounds run in step with it: x and y would both be forgotten, and read anew,
// at the same moment of every round. After this, x is remembered for longer than y, past the other host's next write.
func (m *meeting) dwell(n int) error {
	if n%4 != 0 {
		return nil
	}
	return m.pause(rand.N(max(1, min(m.trip/2, maxDwell))))
}

// tripped takes down how long an answer took, if nobody dwelt over it.
func (m *meeting) tripped(n int, took time.Duration) {
	if n%4 >= 2 {
		m.trip = took
		m.trips.Add(took)
	}
}

// say writes a round to both own slots, one after the other. A value that is somebody's stays.
func (m *meeting) say(n int) error {
	value := word{round: n, rounds: m.rounds, nonce: m.nonce, echo: m.theirs}.encode()
	for _, lk := range m.locks {
		taken := false
		err := lk.do(func() error {
			return lk.publish(func(own *layout.Slot) {
				if taken = own.ValueToken != 0; !taken {
					own.Value = value
				}
			})
		})
		if err == nil && taken {
			err = fmt.Errorf("%w: lock %q has a value, and is to be used by probes alone", api.ErrInvalid, lk.entry.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clear takes back what was said. It is done even if the caller has gone; if the lease is over it need not be.
func (m *meeting) clear() error {
	for _, lk := range m.locks {
		err := lk.do(func() error {
			if _, said := decodeWord(lk.area.own.Value); !said || lk.area.own.ValueToken != 0 {
				return nil
			}
			return lk.publish(func(own *layout.Slot) { own.Value = nil })
		})
		if err != nil && !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrLeaseLost) {
			return err
		}
	}
	return nil
}

// greet returns when the other host has seen this one. What an earlier meeting left echoes another nonce.
func (m *meeting) greet() error {
	if err := m.say(0); err != nil {
		return err
	}
	return m.watch(MeetAbsent, m.o.Timeout, func(w word, is bool) (bool, error) {
		if is && w.nonce != m.theirs {
			m.theirs = w.nonce
			if err := m.say(0); err != nil {
				return false, err
			}
		}
		if !is || w.echo != m.nonce {
			return false, nil
		}
		m.rounds = max(1, min(m.rounds, w.rounds))
		return true, nil
	})
}

// patience is for how long nothing new may be seen of a host that was met. Its own writes may wait for a renewal.
func (m *meeting) patience() time.Duration { return max(10*time.Second, m.d.sb.Lease/2) }

// hear waits for y of a round, then looks at x.
func (m *meeting) hear(n int) error {
	err := m.watch(MeetStalled, m.patience(), func(w word, is bool) (bool, error) {
		if !is || w.nonce != m.theirs {
			return false, m.gone(is)
		}
		return w.round >= n, nil
	})
	if err == nil {
		err = m.dwell(n)
	}
	if err != nil {
		return err
	}
	return m.checkX(n)
}

// bye waits until the other host has taken back what it said: it has heard the last word.
func (m *meeting) bye() error {
	return m.watch(MeetStalled, m.patience(), func(w word, is bool) (bool, error) {
		return !is || w.nonce != m.theirs, nil
	})
}

func (m *meeting) gone(anew bool) error {
	if anew {
		return meetEnd{MeetEnded, fmt.Sprintf("host %d has begun anew", m.o.Host)}
	}
	return meetEnd{MeetEnded, fmt.Sprintf("host %d has given up", m.o.Host)}
}

// watch reads y of the other host until f, which is told of each, says that it is enough.
func (m *meeting) watch(otherwise MeetOutcome, patience time.Duration, f func(w word, is bool) (bool, error)) error {
	begun := time.Now()
	for {
		asked := time.Now()
		s, ok, err := m.look(slotY)
		latency := time.Since(asked)
		if err != nil {
			return err
		}
		if ok {
			w, is := decodeWord(s.Value)
			if enough, err := f(w, is); err != nil || enough {
				return err
			}
		}
		waited := time.Since(begun)
		if waited > patience {
			return meetEnd{otherwise, fmt.Sprintf("nothing new was seen of host %d for %v", m.o.Host, patience)}
		}
		if rand.IntN(4) == 0 {
			if _, _, err := m.look(slotX); err != nil {
				return err
			}
		}
		if err := m.pause(pollPause(waited, latency, 1)); err != nil {
			return err
		}
	}
}

func (m *meeting) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	case <-m.d.mem.lost:
		return fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
}

// look reads a slot of the other host. ok is false if it was torn, is another lock's, or is older than one that was
// read before, which is counted.
func (m *meeting) look(which int) (s layout.Slot, ok bool, err error) {
	lk, space := m.locks[which], m.d.sb.Space()
	buf := lockspace.Pool.Get(space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := m.d.dev.Read(buf, space.Geometry.Slot(lk.entry.Lock, m.o.Host)); err != nil {
		if lockspace.IsBadSector(err) {
			return s, false, nil
		}
		return s, false, err
	}
	s, err = space.DecodeSlot(buf, lk.entry.Lock, m.o.Host)
	if err != nil { // it is being written
		return s, false, nil
	}
	if s.Blank() || s.Creation != lk.entry.Creation {
		s.Value = nil
	}
	seen := &m.seen[which]
	highest, known := seen.highest[s.Incarnation]
	switch {
	case s.Blank() && seen.current != 0:
		m.caught(which, "it was in use, and is virgin again")
		return s, false, nil
	case known && s.Incarnation != seen.current: // which of the two is the later one is not known
		m.caught(which, "incarnation %016x was there before, and again after another one", s.Incarnation)
		seen.current = s.Incarnation
		return s, false, nil
	case s.Sequence < highest:
		m.caught(which, "its sequence went back from %d to %d", highest, s.Sequence)
		return s, false, nil
	case seen.highest == nil:
		seen.highest = map[uint64]uint64{}
	}
	seen.highest[s.Incarnation], seen.current = s.Sequence, s.Incarnation
	return s, true, nil
}

func (m *meeting) caught(which int, format string, args ...any) {
	m.stale++
	if m.detail == "" {
		m.detail = fmt.Sprintf("in round %d, slot %s of host %d: ", m.done+1, slotNames[which], m.o.Host) + fmt.Sprintf(format, args...)
	}
}

// unsettled is for how long x of another meeting than y is taken for one that has begun since.
const unsettled = 2 * time.Second

// checkX reads x after y of a round was seen.
func (m *meeting) checkX(n int) error {
	odd := false // it was of another meeting
	for begun := time.Now(); ; {
		before := m.stale
		s, ok, err := m.look(slotX)
		if err != nil || m.stale != before {
			return err
		}
		w, is := decodeWord(s.Value)
		ours, late := ok && is && w.nonce == m.theirs, time.Since(begun) > unsettled
		switch {
		case ours && w.round >= n && !odd:
			return nil
		case ours && !odd:
			m.caught(slotX, "it shows round %d although %d was acknowledged before the read began", w.round, n)
			return nil
		case ours, ok && late:
			m.caught(slotX, "it shows what was there before this meeting")
			return nil
		case late:
			return meetEnd{MeetStalled, fmt.Sprintf("slot x of host %d cannot be read", m.o.Host)}
		}
		odd = odd || ok
		// Torn, or of another meeting: if the other host has begun one, y will show it.
		y, ok, err := m.look(slotY)
		if err != nil {
			return err
		}
		if w, is := decodeWord(y.Value); ok && (!is || w.nonce != m.theirs) {
			return m.gone(is)
		}
		if err := m.pause(m.d.times().Poll()); err != nil {
			return err
		}
	}
}
