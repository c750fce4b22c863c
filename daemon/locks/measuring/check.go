package measuring

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// checkWord is a message to another host, in a slot's value with value token 0, which marks it as no
// client's value. It is stored as it is here, little-endian.
type checkWord struct {
	Magic  [4]byte // wordMagic
	Round  uint32  // 0 before the first
	Nonce  uint64  // identifies this check, drawn by the writer
	Echo   uint64  // the other host's nonce as last read, 0 if none
	Rounds uint32  // that the writer requests
}

var wordMagic = [4]byte{'B', 'K', 'M', 'T'}

func (w checkWord) encode() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, w) // no error: the size is fixed
	return b
}

// decodeWord returns the zero word if b is none.
func decodeWord(b []byte) (w checkWord) {
	if n, err := binary.Decode(b, binary.LittleEndian, &w); err != nil || n != len(b) || w.Magic != wordMagic {
		return checkWord{}
	}
	return w
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
	ctx   context.Context // ends with the lease
	meter *Meter
	o     MeetOptions
	locks [2]*locks.Lock
	r     MeetReport // so far

	seen  [2]seenSlot   // of the other host
	trip  time.Duration // the last one of trips
	trips latency.Recorder
}

// seenSlot is what was read of a slot so far: the highest sequence by incarnation, and the last
// incarnation.
type seenSlot struct {
	highest map[uint64]uint64
	current uint64
}

// run carries out the check. The host with the lower id leads: it publishes each round first. The
// other one publishes a round after it has read it, and at the end waits until the leader has read
// the last one.
func (m *coherenceCheck) run() (err error) {
	defer func() { err = errors.Join(err, m.clear()) }()
	if err := m.greet(); err != nil {
		return err
	}
	leads := m.r.Host < m.r.Peer
	var begun time.Time // when the round was published that the other host answers
	say := func(n int) error {
		begun = time.Now()
		return m.say(n)
	}
	for n := 1; n <= m.o.Rounds; n++ {
		if leads {
			if err := say(n); err != nil {
				return err
			}
		}
		if err := m.hear(n); err != nil {
			return err
		}
		if !begun.IsZero() {
			m.tripped(n, time.Since(begun))
		}
		if !leads {
			if err := say(n); err != nil {
				return err
			}
		}
		m.r.Rounds = n
	}
	if leads {
		return nil
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

// say writes a round to both own slots, one after the other.
func (m *coherenceCheck) say(n int) error {
	value := checkWord{wordMagic, uint32(n), m.r.Nonce, m.r.PeerNonce, uint32(m.o.Rounds)}.encode()
	for _, lk := range m.locks {
		if err := publish(lk, value); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the words from the own slots, even if the caller has gone. If the lease is over
// that is not needed.
func (m *coherenceCheck) clear() error {
	for _, lk := range m.locks {
		err := publish(lk, nil)
		if err != nil && !errors.Is(err, api.ErrInvalid) && !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrLeaseLost) {
			return err
		}
	}
	return nil
}

// publish sets the value of an own slot. It does not overwrite a client's value.
func publish(lk *locks.Lock, value []byte) error {
	return lk.WithSlot(func(slot locks.SlotTx) error {
		taken := false
		err := slot.Publish(func(own *layout.Slot) {
			if taken = own.ValueToken != 0; !taken {
				own.Value = value
			}
		})
		if err == nil && taken {
			err = fmt.Errorf("%w: lock %q has a value; only probes may use it", api.ErrInvalid, lk.Entry.Name)
		}
		return err
	})
}

// greet returns when the other host has seen this one. A word that an earlier check left echoes
// another nonce.
func (m *coherenceCheck) greet() error {
	if err := m.say(0); err != nil {
		return err
	}
	return m.watch(MeetAbsent, m.o.Timeout, func(w checkWord) (bool, error) {
		if w.Nonce != 0 && w.Nonce != m.r.PeerNonce {
			m.r.PeerNonce = w.Nonce
			if err := m.say(0); err != nil {
				return false, err
			}
		}
		if w.Echo != m.r.Nonce {
			return false, nil
		}
		m.o.Rounds = max(1, min(m.o.Rounds, int(w.Rounds)))
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
	err := m.watch(MeetStalled, m.patience(), func(w checkWord) (bool, error) {
		return int(w.Round) >= n, m.present(w)
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
	return m.watch(MeetStalled, m.patience(), func(w checkWord) (bool, error) {
		return m.present(w) != nil, nil
	})
}

// present returns an error if a word is not of the other host's check.
func (m *coherenceCheck) present(w checkWord) error {
	switch w.Nonce {
	case m.r.PeerNonce:
		return nil
	case 0:
		return meetEnd{MeetEnded, fmt.Sprintf("host %d has given up", m.r.Peer)}
	}
	return meetEnd{MeetEnded, fmt.Sprintf("host %d has started again", m.r.Peer)}
}

// watch reads y of the other host until f, called with each word, returns true or an error.
func (m *coherenceCheck) watch(otherwise MeetOutcome, patience time.Duration, f func(checkWord) (bool, error)) error {
	begun := time.Now()
	for {
		asked := time.Now()
		w, ok, err := m.look(slotY)
		latency := time.Since(asked)
		if err != nil {
			return err
		}
		if ok {
			if enough, err := f(w); err != nil || enough {
				return err
			}
		}
		waited := time.Since(begun)
		if waited > patience {
			return meetEnd{otherwise, fmt.Sprintf("nothing new was seen of host %d for %v", m.r.Peer, patience)}
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
	if retry.Pause(m.ctx, d) != nil {
		return context.Cause(m.ctx)
	}
	return nil
}

// look reads the word in a slot of the other host; the zero word if there is none. ok is false if
// the slot was torn, or is stale, which is counted.
func (m *coherenceCheck) look(which int) (w checkWord, ok bool, err error) {
	lk, space := m.locks[which], m.meter.disk.SB.Space()
	buf := lockspace.Pool.Get(space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := m.meter.disk.Dev.Read(buf, space.Geometry.Slot(lk.Entry.Lock, m.r.Peer)); err != nil {
		if lockspace.IsBadSector(err) {
			err = nil
		}
		return w, false, err
	}
	s, err := space.DecodeSlot(buf, lk.Entry.Lock, m.r.Peer)
	if err != nil { // it is being written
		return w, false, nil
	}
	seen := &m.seen[which]
	highest, known := seen.highest[s.Incarnation]
	switch {
	case s.Blank() && seen.current != 0:
		m.caught(which, "it was in use, and is blank again")
		return w, false, nil
	case known && s.Incarnation != seen.current: // which of the two is the later one is not known
		m.caught(which, "incarnation %016x was there before, and again after another one", s.Incarnation)
		seen.current = s.Incarnation
		return w, false, nil
	case s.Sequence < highest:
		m.caught(which, "its sequence went back from %d to %d", highest, s.Sequence)
		return w, false, nil
	case seen.highest == nil:
		seen.highest = map[uint64]uint64{}
	}
	seen.highest[s.Incarnation], seen.current = s.Sequence, s.Incarnation
	if !s.Blank() && s.Creation == lk.Entry.Creation {
		w = decodeWord(s.Value)
	}
	return w, true, nil
}

func (m *coherenceCheck) caught(which int, format string, args ...any) {
	m.r.Stale++
	if m.r.Detail == "" {
		m.r.Detail = fmt.Sprintf("in round %d, slot %s of host %d: ", m.r.Rounds+1, slotNames[which], m.r.Peer) + fmt.Sprintf(format, args...)
	}
}

// unsettled is how long x of another check than y is taken for a new check of the other host.
const unsettled = 2 * time.Second

// checkX reads x after y of round n was seen.
func (m *coherenceCheck) checkX(n int) error {
	odd := false // a read showed x of another check
	for begun := time.Now(); ; {
		before := m.r.Stale
		w, ok, err := m.look(slotX)
		if err != nil || m.r.Stale != before {
			return err
		}
		ours, late := ok && w.Nonce == m.r.PeerNonce, time.Since(begun) > unsettled
		switch {
		case ours && int(w.Round) >= n && !odd:
			return nil
		case ours && !odd:
			m.caught(slotX, "it shows round %d although %d was acknowledged before the read began", w.Round, n)
			return nil
		case ours, ok && late:
			m.caught(slotX, "it shows a value from before this check")
			return nil
		case late:
			return meetEnd{MeetStalled, fmt.Sprintf("slot x of host %d cannot be read", m.r.Peer)}
		}
		odd = odd || ok
		// Torn, or of another check: if the other host has started one, y shows that.
		y, ok, err := m.look(slotY)
		if err == nil && ok {
			err = m.present(y)
		}
		if err != nil {
			return err
		}
		if err := m.pause(m.meter.disk.Times().Poll()); err != nil {
			return err
		}
	}
}
