package measuring

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// checkWord is a message to another host, in a slot's value with value token 0, which marks it as no
// client's value.
//
//	bytes  | field
//	-------|----------------------------------------------------------------------
//	 0 - 3 | magic "BKMT"
//	 4 - 7 | round, 0 before the first
//	 8 -15 | nonce: identifies this check, drawn by the writer
//	16 -23 | echo: the other host's nonce as last read, 0 if none
//	24 -27 | rounds that the writer requests
type checkWord struct {
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

func (w checkWord) encode() []byte {
	b := make([]byte, wordEnd)
	copy(b, wordMagic)
	binary.LittleEndian.PutUint32(b[wordRound:], uint32(w.round))
	binary.LittleEndian.PutUint64(b[wordNonce:], w.nonce)
	binary.LittleEndian.PutUint64(b[wordEcho:], w.echo)
	binary.LittleEndian.PutUint32(b[wordRounds:], uint32(w.rounds))
	return b
}

func decodeWord(b []byte) (w checkWord, ok bool) {
	if len(b) != wordEnd || string(b[:wordRound]) != wordMagic {
		return checkWord{}, false
	}
	return checkWord{
		round: int(binary.LittleEndian.Uint32(b[wordRound:])), rounds: int(binary.LittleEndian.Uint32(b[wordRounds:])),
		nonce: binary.LittleEndian.Uint64(b[wordNonce:]), echo: binary.LittleEndian.Uint64(b[wordEcho:]),
	}, true
}

// meetEnd is the error of a check that ended early.
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

// coherenceCheck is one host's part in a coherence check. It is used by one goroutine.
type coherenceCheck struct {
	ctx    context.Context
	meter  *Meter
	o      MeetOptions
	locks  [2]*locks.Lock
	nonce  uint64
	theirs uint64 // the other host's nonce, 0 if not seen yet
	rounds int

	seen   [2]seenSlot   // of the other host
	done   int           // completed rounds
	trip   time.Duration // the last one of trips
	trips  probe.Stopwatch
	stale  int
	detail string // of the first stale read
}

// seenSlot is what was read of a slot so far: the highest sequence by incarnation, and the last
// incarnation.
type seenSlot struct {
	highest map[uint64]uint64
	current uint64
}

func (m *coherenceCheck) run() (err error) {
	defer func() { err = errors.Join(err, m.clear()) }()
	if err := m.greet(); err != nil {
		return err
	}
	if m.meter.mem.ID() < m.o.Host {
		return m.lead()
	}
	return m.follow()
}

// lead publishes each round first. At its end the other host has read the last round.
func (m *coherenceCheck) lead() error {
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

// follow publishes each round after it has read it. At its end it waits until the other host has
// read the last round.
func (m *coherenceCheck) follow() error {
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

// maxDwell limits the pause before a read of x.
const maxDwell = 2 * time.Second

// dwell pauses between y and x in every fourth round, for up to half of a round. If reads come from
// a cache that expires, rounds synchronize with it: x and y both expire and are read again at the
// same time of every round. After the pause, x stays cached for longer than y, past the other
// host's next write.
func (m *coherenceCheck) dwell(n int) error {
	if n%4 != 0 {
		return nil
	}
	return m.pause(rand.N(max(1, min(m.trip/2, maxDwell))))
}

// tripped records how long an answer took, in rounds without a dwell.
func (m *coherenceCheck) tripped(n int, took time.Duration) {
	if n%4 >= 2 {
		m.trip = took
		m.trips.Add(took)
	}
}

// say writes a round to both own slots, one after the other. It does not overwrite a client's value.
func (m *coherenceCheck) say(n int) error {
	value := checkWord{round: n, rounds: m.rounds, nonce: m.nonce, echo: m.theirs}.encode()
	for _, lk := range m.locks {
		taken := false
		err := lk.WithSlot(func(slot locks.SlotTx) error {
			return slot.Publish(func(own *layout.Slot) {
				if taken = own.ValueToken != 0; !taken {
					own.Value = value
				}
			})
		})
		if err == nil && taken {
			err = fmt.Errorf("%w: lock %q has a value; only probes may use it", api.ErrInvalid, lk.Entry.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clear removes the words from the own slots, even if the caller has gone. If the lease is over
// that is not needed.
func (m *coherenceCheck) clear() error {
	for _, lk := range m.locks {
		err := lk.WithSlot(func(slot locks.SlotTx) error {
			own := slot.Own()
			if _, said := decodeWord(own.Value); !said || own.ValueToken != 0 {
				return nil
			}
			return slot.Publish(func(own *layout.Slot) { own.Value = nil })
		})
		if err != nil && !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrLeaseLost) {
			return err
		}
	}
	return nil
}

// greet returns when the other host has seen this one. A word that an earlier check left echoes
// another nonce.
func (m *coherenceCheck) greet() error {
	if err := m.say(0); err != nil {
		return err
	}
	return m.watch(MeetAbsent, m.o.Timeout, func(w checkWord, is bool) (bool, error) {
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

// patience returns how long no progress of the other host is accepted. Its writes may wait for a
// renewal.
func (m *coherenceCheck) patience() time.Duration {
	return max(10*time.Second, m.meter.disk.SB.Lease/2)
}

// hear waits for y of round n, then checks x.
func (m *coherenceCheck) hear(n int) error {
	err := m.watch(MeetStalled, m.patience(), func(w checkWord, is bool) (bool, error) {
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

// bye waits until the other host has removed its words: it has read the last one.
func (m *coherenceCheck) bye() error {
	return m.watch(MeetStalled, m.patience(), func(w checkWord, is bool) (bool, error) {
		return !is || w.nonce != m.theirs, nil
	})
}

func (m *coherenceCheck) gone(again bool) error {
	if again {
		return meetEnd{MeetEnded, fmt.Sprintf("host %d has started again", m.o.Host)}
	}
	return meetEnd{MeetEnded, fmt.Sprintf("host %d has given up", m.o.Host)}
}

// watch reads y of the other host until f, called with each word, returns true or an error.
func (m *coherenceCheck) watch(otherwise MeetOutcome, patience time.Duration, f func(w checkWord, is bool) (bool, error)) error {
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
		if err := m.pause(driver.PollPause(waited, latency, 1)); err != nil {
			return err
		}
	}
}

func (m *coherenceCheck) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	case <-m.meter.mem.Lost():
		return fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
}

// look reads a slot of the other host. ok is false if the slot was torn, is of another creation, or
// is stale, which is counted.
func (m *coherenceCheck) look(which int) (s layout.Slot, ok bool, err error) {
	lk, space := m.locks[which], m.meter.disk.SB.Space()
	buf := lockspace.Pool.Get(space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := m.meter.disk.Dev.Read(buf, space.Geometry.Slot(lk.Entry.Lock, m.o.Host)); err != nil {
		if lockspace.IsBadSector(err) {
			return s, false, nil
		}
		return s, false, err
	}
	s, err = space.DecodeSlot(buf, lk.Entry.Lock, m.o.Host)
	if err != nil { // it is being written
		return s, false, nil
	}
	if s.Blank() || s.Creation != lk.Entry.Creation {
		s.Value = nil
	}
	seen := &m.seen[which]
	highest, known := seen.highest[s.Incarnation]
	switch {
	case s.Blank() && seen.current != 0:
		m.caught(which, "it was in use, and is blank again")
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

func (m *coherenceCheck) caught(which int, format string, args ...any) {
	m.stale++
	if m.detail == "" {
		m.detail = fmt.Sprintf("in round %d, slot %s of host %d: ", m.done+1, slotNames[which], m.o.Host) + fmt.Sprintf(format, args...)
	}
}

// unsettled is how long x of another check than y is taken for a new check of the other host.
const unsettled = 2 * time.Second

// checkX reads x after y of round n was seen.
func (m *coherenceCheck) checkX(n int) error {
	odd := false // a read showed x of another check
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
			m.caught(slotX, "it shows a value from before this check")
			return nil
		case late:
			return meetEnd{MeetStalled, fmt.Sprintf("slot x of host %d cannot be read", m.o.Host)}
		}
		odd = odd || ok
		// Torn, or of another check: if the other host has started one, y shows that.
		y, ok, err := m.look(slotY)
		if err != nil {
			return err
		}
		if w, is := decodeWord(y.Value); ok && (!is || w.nonce != m.theirs) {
			return m.gone(is)
		}
		if err := m.pause(m.meter.disk.Times().Poll()); err != nil {
			return err
		}
	}
}
