package measuring

import (
	"cmp"
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
	"github.com/bakeryd/bakeryd/daemon/text"
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

// errEnded is the error of a check that ended early. The report has the outcome and the reason.
var errEnded = errors.New("the check ended early")

// The two slots of each host.
const (
	slotX = iota
	slotY
)

// coherenceCheck is one host's part in a coherence check. It is used by one goroutine.
type coherenceCheck struct {
	ctx   context.Context // ends with the lease
	meter *Meter
	o     MeetOptions
	locks [2]*locks.Lock
	ours  map[string]bool // names of the locks that this check has created
	r     MeetReport      // so far
	err   error           // of the first step that failed; the next ones do nothing
	gone  bool            // the other host has removed a lock

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
func (m *coherenceCheck) run() error {
	m.greet()
	leads := m.r.Host < m.r.Peer
	var asked time.Time // when the round was published that the other host answers
	for n := 1; n <= m.o.Rounds && m.err == nil; n++ {
		if leads {
			asked = time.Now()
			m.say(n)
		}
		m.hear(n)
		if m.err == nil && !asked.IsZero() && n%4 >= 2 { // an answer without a dwell
			m.trip = time.Since(asked)
			m.trips.Add(m.trip)
		}
		if !leads {
			asked = time.Now()
			m.say(n)
		}
		if m.err == nil {
			m.r.Rounds = n
		}
	}
	if !leads {
		m.bye()
	}
	return errors.Join(m.err, m.clear())
}

// say writes a round to both own slots, one after the other.
func (m *coherenceCheck) say(n int) {
	value := checkWord{wordMagic, uint32(n), m.r.Nonce, m.r.PeerNonce, uint32(m.o.Rounds)}.encode()
	for _, lk := range m.locks {
		if m.err == nil {
			m.err = publish(lk, value)
		}
	}
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

// find finds the two locks, or creates them.
func (m *coherenceCheck) find() error {
	for i, name := range m.r.Locks {
		lk, created, err := m.meter.ownLock(m.ctx, name)
		if err != nil {
			return err
		}
		m.locks[i], m.seen[i] = lk, seenSlot{}
		m.ours[name] = m.ours[name] || created
	}
	m.gone = false
	return nil
}

// remove removes the locks that this check has created. The other host then needs them no more, or finds that they are
// gone.
func (m *coherenceCheck) remove() {
	for name, created := range m.ours {
		if created {
			m.meter.remove(name)
		}
	}
}

// greet returns when the other host has seen this one. A word that an earlier check left echoes
// another nonce. If an earlier check of the other host removes its locks meanwhile, its next one has others.
func (m *coherenceCheck) greet() {
	m.say(0)
	m.watch(MeetAbsent, m.o.Timeout, func(w checkWord) bool {
		if m.gone {
			m.err = m.find()
			m.say(0)
			return false
		}
		if w.Nonce != 0 && w.Nonce != m.r.PeerNonce {
			m.r.PeerNonce = w.Nonce
			m.say(0)
		}
		if w.Echo != m.r.Nonce {
			return false
		}
		m.o.Rounds = max(1, min(m.o.Rounds, int(w.Rounds)))
		return true
	})
}

// patience returns how long no progress of the other host is accepted. Its writes may wait for a
// renewal.
func (m *coherenceCheck) patience() time.Duration {
	return max(10*time.Second, m.meter.disk.SB.Lease/2)
}

// maxDwell limits the pause before a read of x.
const maxDwell = 2 * time.Second

// hear waits for y of round n, then checks x. In between, every fourth round dwells for up to half
// of a round. If reads come from a cache that expires, rounds synchronize with it: x and y both
// expire and are read again at the same time of every round. After the pause, x stays cached for
// longer than y, past the other host's next write.
func (m *coherenceCheck) hear(n int) {
	m.watch(MeetStalled, m.patience(), func(w checkWord) bool { return m.present(w) && int(w.Round) >= n })
	if n%4 == 0 {
		m.pause(rand.N(max(1, min(m.trip/2, maxDwell))))
	}
	m.checkX(n)
}

// bye waits until the other host has removed its words: it has read the last one.
func (m *coherenceCheck) bye() {
	m.watch(MeetStalled, m.patience(), func(w checkWord) bool { return w.Nonce != m.r.PeerNonce })
}

// present reports whether a word is of the other host's check, and otherwise ends this one.
func (m *coherenceCheck) present(w checkWord) bool {
	switch w.Nonce {
	case m.r.PeerNonce:
		return true
	case 0:
		m.end(MeetEnded, "host %d has given up", m.r.Peer)
	default:
		m.end(MeetEnded, "host %d has started again", m.r.Peer)
	}
	return false
}

// end ends the check early.
func (m *coherenceCheck) end(outcome MeetOutcome, format string, args ...any) {
	if m.err == nil {
		m.err, m.r.Outcome = errEnded, outcome
		m.r.Detail = cmp.Or(m.r.Detail, fmt.Sprintf(format, args...))
	}
}

// watch reads y of the other host until f, called with each word, returns true or a step fails.
func (m *coherenceCheck) watch(otherwise MeetOutcome, patience time.Duration, f func(checkWord) bool) {
	for begun := time.Now(); m.err == nil; {
		asked := time.Now()
		w, ok := m.look(slotY)
		latency := time.Since(asked)
		if ok && f(w) {
			return
		}
		waited := time.Since(begun)
		if waited > patience {
			m.end(otherwise, "nothing new was seen of host %d for %v", m.r.Peer, patience)
		}
		if rand.IntN(4) == 0 {
			m.look(slotX)
		}
		m.pause(driver.PollPause(waited, latency, 1))
	}
}

func (m *coherenceCheck) pause(d time.Duration) {
	if m.err == nil && retry.Pause(m.ctx, d) != nil {
		m.err = context.Cause(m.ctx)
	}
}

// look reads the word in a slot of the other host; the zero word if there is none. ok is false if
// the slot was torn, or is stale, which is counted.
func (m *coherenceCheck) look(which int) (w checkWord, ok bool) {
	if m.err != nil {
		return w, false
	}
	lk, space := m.locks[which], m.meter.disk.SB.Space()
	buf := lockspace.Pool.Get(space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := m.meter.disk.Dev.Read(buf, space.Geometry.Slot(lk.Entry.Lock, m.r.Peer)); err != nil {
		if !lockspace.IsBadSector(err) {
			m.err = err
		}
		return w, false
	}
	s, err := space.DecodeSlot(buf, lk.Entry.Lock, m.r.Peer)
	if err != nil { // it is being written
		return w, false
	}
	seen := &m.seen[which]
	highest, known := seen.highest[s.Incarnation]
	switch {
	case s.Blank() && seen.current != 0:
		m.caught(which, "it was in use, and is blank again")
		return w, false
	case known && s.Incarnation != seen.current: // which of the two is the later one is not known
		m.caught(which, "incarnation %v was there before, and again after another one", text.Hex(s.Incarnation))
		seen.current = s.Incarnation
		return w, false
	case s.Sequence < highest:
		m.caught(which, "its sequence went back from %d to %d", highest, s.Sequence)
		return w, false
	case seen.highest == nil:
		seen.highest = map[uint64]uint64{}
	}
	seen.highest[s.Incarnation], seen.current = s.Sequence, s.Incarnation
	m.gone = m.gone || s.Creation > lk.Entry.Creation
	if !s.Blank() && s.Creation == lk.Entry.Creation {
		w = decodeWord(s.Value)
	}
	return w, true
}

func (m *coherenceCheck) caught(which int, format string, args ...any) {
	m.r.Stale++
	slot := fmt.Sprintf("in round %d, slot %c of host %d: ", m.r.Rounds+1, "xy"[which], m.r.Peer)
	m.r.Detail = cmp.Or(m.r.Detail, slot+fmt.Sprintf(format, args...))
}

// unsettled is how long x of another check than y is taken for a new check of the other host.
const unsettled = 2 * time.Second

// checkX reads x after y of round n was seen.
func (m *coherenceCheck) checkX(n int) {
	odd := false // a read showed x of another check
	for begun := time.Now(); m.err == nil; {
		before := m.r.Stale
		w, ok := m.look(slotX)
		if m.r.Stale != before {
			return
		}
		ours, late := ok && w.Nonce == m.r.PeerNonce, time.Since(begun) > unsettled
		switch {
		case ours && int(w.Round) >= n && !odd:
			return
		case ours && !odd:
			m.caught(slotX, "it shows round %d although %d was acknowledged before the read began", w.Round, n)
			return
		case ours, ok && late:
			m.caught(slotX, "it shows a value from before this check")
			return
		case late:
			m.end(MeetStalled, "slot x of host %d cannot be read", m.r.Peer)
		}
		odd = odd || ok
		// Torn, or of another check: if the other host has started one, y shows that.
		if y, ok := m.look(slotY); ok {
			m.present(y)
		}
		m.pause(m.meter.disk.Times().Poll())
	}
}
