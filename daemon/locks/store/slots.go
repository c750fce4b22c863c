package store

import (
	"bytes"
	"fmt"
	"math/big"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Slots reads and writes the slots of one lock for one host. It is used by one goroutine.
type Slots struct {
	Dev     Device        // for IO that other hosts may wait for
	Views   []bakery.View // of the slots as last read, at host id - 1
	Latency time.Duration // of the last read

	// own slot as last written, or found. The next write shows changes of fields that the protocol
	// does not know.
	Own    layout.Slot
	Failed bool // the last write of Own failed, so it may or may not be on the disk

	Generation uint32          // of this host's id, with several disks
	Notes      *handover.Notes // nil if none

	space       layout.Space
	lock        int
	host        int
	incarnation uint64 // of this host
	creation    uint64 // of the lock's entry

	known    bool   // Own was read once
	sequence uint64 // greatest one written or found in this incarnation, with several disks
	intends  bool   // the intent in Own is of this process
	intents  uint64 // number of those, with several disks

	// hosts with slots that were seen written, as bits: these cannot become blank again
	written big.Int

	seen []caption   // of the slots as last read, at host id - 1; the last ones may be missing
	last layout.Slot // slot decoded last; the next decode reuses its memory
}

// Slots returns the slots of a lock. resumed says that an earlier process of this incarnation may
// have left the own slot in any state.
func (d *Disk) Slots(e layout.Entry, host int, incarnation uint64, resumed bool) *Slots {
	return &Slots{
		Dev: d.device(e.Lock, e.Name, resumed), space: d.SB.Space(), lock: e.Lock, host: host, incarnation: incarnation, creation: e.Creation,
	}
}

// At returns the first byte of a host's slot.
func (a *Slots) At(host int) int64 { return a.space.Geometry.Slot(a.lock, host) }

// caption is the part of a slot that is for display, and unknown to the protocol.
type caption struct {
	holder  layout.Holder
	request string
}

// ReadAll reads the slots of hosts 1..n in one request. The result is valid until the next call.
func (a *Slots) ReadAll(n int) ([]bakery.View, error) {
	stride := a.space.Geometry.Stride
	buf := lockspace.Pool.Get(n * stride)
	defer lockspace.Pool.Put(buf)
	start := time.Now()
	off := a.At(1)
	var errs []error
	err := a.Dev.Read(buf, off)
	if err != nil {
		if errs, err = lockspace.ReadOneByOne(a.Dev, buf, off, stride, err); err != nil {
			return nil, fmt.Errorf("read the slots of lock %d: %w", a.lock, err)
		}
	}
	a.Latency = time.Since(start)
	a.Views = a.Views[:0]
	for i := range n {
		var err error
		if errs != nil {
			err = errs[i]
		}
		a.Views = append(a.Views, a.view(buf[i*stride:(i+1)*stride], i+1, err))
	}
	return a.Views, nil
}

// ReadOne reads the slot of one host.
func (a *Slots) ReadOne(host int) (bakery.View, error) {
	buf := lockspace.Pool.Get(a.space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	start := time.Now()
	err := a.Dev.Read(buf, a.At(host))
	if err != nil && !lockspace.IsBadSector(err) {
		return bakery.View{}, fmt.Errorf("read the slot of host %d in lock %d: %w", host, a.lock, err)
	}
	a.Latency = time.Since(start)
	return a.view(buf, host, err), nil
}

func (a *Slots) view(sector []byte, host int, err error) bakery.View {
	if err != nil {
		return a.unreadable(host)
	}
	before := a.caption(host)
	a.last.Holder, a.last.Request.Message = before.holder, before.request
	s, err := a.space.RedecodeSlot(a.last, sector, a.lock, host)
	if err != nil {
		a.last = layout.Slot{}
		return a.unreadable(host)
	}
	a.last = s
	if !s.Blank() {
		a.written.SetBit(&a.written, host, 1)
	} else if host != a.host && a.written.Bit(host) == 1 {
		// zeroed, or read from the wrong place: if it counted as idle, this host could enter while
		// that one is inside
		return bakery.View{}
	}
	if now := (caption{s.Holder, s.Request.Message}); now != before {
		a.keep(host, now)
	}
	if host == a.host && a.known && !a.Failed {
		a.Dev.part.Store(a.takesPart(a.Own))
	}
	if host == a.host && !a.known {
		a.Own, a.known = s, true
		if s.Incarnation == a.incarnation {
			a.sequence = max(a.sequence, s.Sequence)
		}
		a.Dev.part.Store(a.takesPart(s))
		a.Own.Value = bytes.Clone(s.Value)
		// An intent of an earlier incarnation has been carried out or never will be: its writes had
		// all ended when this incarnation took on its id.
		// With several disks it stays until its entry is settled (RESOLVE). The value token marks it.
		if a.lock == lockspace.DirectoryLock && s.Incarnation != a.incarnation {
			if a.space.Several && len(s.Value) > 0 {
				a.Own.ValueToken = s.Ticket
			} else {
				a.Own.Value, a.Own.ValueToken = nil, 0
			}
		}
		if s.Creation < a.creation {
			a.Own.Request = layout.Request{}
		}
		// A value of a lock that had this place before is obsolete.
		if a.lock != lockspace.DirectoryLock && !s.ValueOf(a.creation) {
			a.Own.Value, a.Own.ValueToken = nil, 0
		}
	}
	return bakery.View{Readable: true, Slot: protocolSlot(s)}
}

// unreadable returns the view of an unreadable slot. Other hosts wait for the own one whatever it
// should show.
func (a *Slots) unreadable(host int) bakery.View {
	if host == a.host {
		a.Dev.part.Store(true)
	}
	return bakery.View{}
}

// caption returns the caption of a host's slot as last read.
func (a *Slots) caption(host int) caption {
	if host > len(a.seen) {
		return caption{}
	}
	return a.seen[host-1]
}

func (a *Slots) keep(host int, w caption) {
	if host > len(a.seen) {
		a.seen = append(a.seen, make([]caption, host-len(a.seen))...)
	}
	a.seen[host-1] = w
}

// Forget frees the memory of what was read.
func (a *Slots) Forget() { a.Views, a.seen, a.last = nil, nil, layout.Slot{} }

func protocolSlot(s layout.Slot) bakery.Slot {
	return bakery.Slot{Incarnation: s.Incarnation, Creation: s.Creation, Ticket: s.Ticket, Phase: s.Phase, Mode: s.Mode}
}

// Write writes the own slot durably, in one request. It keeps the value and the request, which the
// protocol does not know.
func (a *Slots) Write(s bakery.Slot, who layout.Holder) error {
	next := a.Own
	next.Lock, next.Host = a.lock, a.host
	next.Incarnation, next.Creation = s.Incarnation, s.Creation
	next.Ticket, next.Phase, next.Mode = s.Ticket, s.Phase, s.Mode
	next.Holder = who
	return a.put(next, nil)
}

// Rewrite writes the own slot as it was last written, and returns how long the device took.
func (a *Slots) Rewrite() (took time.Duration, err error) {
	err = a.put(a.Own, &took)
	return took, err
}

// put writes a slot with a new version.
func (a *Slots) put(next layout.Slot, took *time.Duration) error {
	next.Sequence++
	if a.space.Several {
		next.Generation, next.Sequence = a.Generation, a.nextSequence()
	}
	buf := lockspace.Pool.Get(a.space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := a.space.EncodeSlot(buf, next); err != nil {
		return fmt.Errorf("encode slot: %w", err)
	}
	if err := a.Notes.Put(a.lock, buf); err != nil {
		return fmt.Errorf("note the slot of host %d in lock %d: %w", a.host, a.lock, err)
	}
	a.Dev.part.Store(true) // until it is certain that the slot shows something else
	if err := a.write(buf, took); err != nil {
		return err
	}
	a.Own, a.known, a.Failed = next, true, false
	a.Dev.part.Store(a.takesPart(next))
	return nil
}

// nextSequence returns one above all that were written in this incarnation (VERSIONS), also by writes
// that failed, and by earlier processes if the slot is unreadable now: these had less time since the
// machine was started, and wrote less often than once in a nanosecond. The generation outranks
// earlier incarnations.
func (a *Slots) nextSequence() uint64 {
	a.sequence = max(a.sequence, uint64(a.Dev.disk.Clock.Now())) + 1
	return a.sequence
}

// write writes a slot that is noted, and then removes the note. It sets took unless that is nil.
func (a *Slots) write(sector []byte, took *time.Duration) error {
	if took != nil {
		defer func(begun time.Time) { *took = time.Since(begun) }(time.Now())
	}
	if err := a.Dev.Write(sector, a.At(a.host)); err != nil {
		a.Failed = true
		return fmt.Errorf("write the slot of host %d in lock %d: %w", a.host, a.lock, err)
	}
	a.Notes.Remove(a.lock)
	return nil
}

// Complete writes a slot that the previous process noted.
func (a *Slots) Complete(note []byte) error {
	buf := lockspace.Pool.Get(a.space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	clear(buf[copy(buf, note):])
	return a.write(buf, nil)
}

// takesPart reports whether other hosts wait for this one by a slot that it may have written: the
// slot is of this incarnation, and is not idle or shows a removal.
func (a *Slots) takesPart(s layout.Slot) bool {
	return s.Incarnation == a.incarnation && (s.Phase != layout.Idle || s.Creation > a.creation)
}

// Shows returns the own slot as last read or written. certain is false if it is not known, or its
// last write failed.
func (a *Slots) Shows() (s bakery.Slot, certain bool) {
	return protocolSlot(a.Own), a.known && !a.Failed
}

// Removed reports whether this incarnation has left a removal of the lock in its own slot.
func (a *Slots) Removed(creation uint64) bool {
	return a.known && a.Own.Incarnation == a.incarnation && a.Own.Creation > creation
}

// Suspect counts the own slot as one that other hosts wait for, until it is read.
func (a *Slots) Suspect() { a.Dev.part.Store(true) }

// Holder returns what a host's slot showed about its holder when it was last read.
func (a *Slots) Holder(host int) layout.Holder { return a.caption(host).holder }
