package locks

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// slotStore reads and writes the slots of one lock for one host. It is used by one goroutine.
type slotStore struct {
	dev   blockdev.Device
	space layout.Space
	lock  int
	host  int
	mine  uint64 // this host's incarnation
	made  uint64 // creation id of the lock's entry

	own    layout.Slot // as last written, or found
	known  bool        // own was read once
	failed bool        // the last write of own failed, so it may or may not be on the disk
	// the slot on the disk may show that this incarnation takes part in the lock, or is unreadable
	part  atomic.Bool
	views []bakery.View
	// hosts with slots that were seen written: these cannot become blank again
	written hostSet
	latency time.Duration // of the last read

	seen []caption   // of the slots as last read, at host id - 1; the last ones may be missing
	last layout.Slot // slot decoded last; the next decode reuses its memory
}

// slotAt returns the first byte of a host's slot.
func (a *slotStore) slotAt(host int) int64 { return a.space.Geometry.Slot(a.lock, host) }

// caption is the part of a slot that is for display, and unknown to the protocol.
type caption struct {
	holder  layout.Holder
	request string
}

func newSlotStore(dev blockdev.Device, space layout.Space, lock, host int) *slotStore {
	return &slotStore{dev: dev, space: space, lock: lock, host: host}
}

// read reads the slots of hosts 1..n in one request. The result is valid until the next call.
func (a *slotStore) read(n int) ([]bakery.View, error) {
	n = max(n, a.host)
	stride := a.space.Geometry.Stride
	buf := lockspace.Pool.Get(n * stride)
	defer lockspace.Pool.Put(buf)
	start := time.Now()
	off := a.space.Geometry.Slot(a.lock, 1)
	var errs []error
	err := a.dev.Read(buf, off)
	if err != nil {
		if errs, err = lockspace.ReadOneByOne(a.dev, buf, off, stride, err); err != nil {
			return nil, fmt.Errorf("read the slots of lock %d: %w", a.lock, err)
		}
	}
	a.latency = time.Since(start)
	a.views = a.views[:0]
	for i := range n {
		var err error
		if errs != nil {
			err = errs[i]
		}
		a.views = append(a.views, a.view(buf[i*stride:(i+1)*stride], i+1, err))
	}
	return a.views, nil
}

// readOne reads the slot of one host.
func (a *slotStore) readOne(host int) (bakery.View, error) {
	buf := lockspace.Pool.Get(a.space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	start := time.Now()
	err := a.dev.Read(buf, a.space.Geometry.Slot(a.lock, host))
	if err != nil && !lockspace.IsBadSector(err) {
		return bakery.View{}, fmt.Errorf("read the slot of host %d in lock %d: %w", host, a.lock, err)
	}
	a.latency = time.Since(start)
	return a.view(buf, host, err), nil
}

func (a *slotStore) view(sector []byte, host int, err error) bakery.View {
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
		a.written.add(host)
	} else if host != a.host && a.written.has(host) {
		// zeroed, or read from the wrong place: if it counted as idle, this host could enter while
		// that one is inside
		return bakery.View{}
	}
	if now := (caption{s.Holder, s.Request.Message}); now != before {
		a.keep(host, now)
	}
	if host == a.host && a.known && !a.failed {
		a.part.Store(a.own.Incarnation == a.mine && a.takesPart(a.own))
	}
	if host == a.host && !a.known {
		a.own, a.known = s, true
		a.part.Store(s.Incarnation == a.mine && a.takesPart(s))
		a.own.Value = bytes.Clone(s.Value)
		// An intent of an earlier incarnation has been carried out or never will be: its writes had
		// all ended when this incarnation took on its id.
		if a.lock == lockspace.DirectoryLock && s.Incarnation != a.mine {
			a.own.Value, a.own.ValueToken = nil, 0
		}
		if s.Creation < a.made {
			a.own.Request = layout.Request{}
		}
		// A value of a lock that had this place before is obsolete.
		if a.lock != lockspace.DirectoryLock && !s.ValueOf(a.made) {
			a.own.Value, a.own.ValueToken = nil, 0
		}
	}
	return bakery.View{Readable: true, Slot: protocolSlot(s)}
}

// unreadable returns the view of an unreadable slot. Other hosts wait for the own one whatever it
// should show.
func (a *slotStore) unreadable(host int) bakery.View {
	if host == a.host {
		a.part.Store(true)
	}
	return bakery.View{}
}

// hostSet is a set of host ids.
type hostSet []uint64

func (s hostSet) has(id int) bool { return id>>6 < len(s) && s[id>>6]>>(id&63)&1 != 0 }

func (s *hostSet) add(id int) {
	for id>>6 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[id>>6] |= 1 << (id & 63)
}

// caption returns the caption of a host's slot as last read.
func (a *slotStore) caption(host int) caption {
	if host > len(a.seen) {
		return caption{}
	}
	return a.seen[host-1]
}

func (a *slotStore) keep(host int, w caption) {
	if host > len(a.seen) {
		a.seen = append(a.seen, make([]caption, host-len(a.seen))...)
	}
	a.seen[host-1] = w
}

// forget frees the memory of what was read.
func (a *slotStore) forget() { a.views, a.seen, a.last = nil, nil, layout.Slot{} }

func protocolSlot(s layout.Slot) bakery.Slot {
	return bakery.Slot{Incarnation: s.Incarnation, Creation: s.Creation, Ticket: s.Ticket, Phase: s.Phase, Mode: s.Mode}
}

// write writes the own slot durably, in one request. It keeps the value and the request, which the
// protocol does not know.
func (a *slotStore) write(s bakery.Slot, who layout.Holder) error {
	next := a.own
	next.Lock, next.Host = a.lock, a.host
	next.Incarnation, next.Creation = s.Incarnation, s.Creation
	next.Ticket, next.Phase, next.Mode = s.Ticket, s.Phase, s.Mode
	next.Holder = who
	next.Sequence++
	buf := lockspace.Pool.Get(a.space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := a.space.EncodeSlot(buf, next); err != nil {
		return fmt.Errorf("encode slot: %w", err)
	}
	a.part.Store(true) // until it is certain that the slot shows something else
	if err := a.dev.Write(buf, a.space.Geometry.Slot(a.lock, a.host)); err != nil {
		a.failed = true
		return fmt.Errorf("write the slot of host %d in lock %d: %w", a.host, a.lock, err)
	}
	a.own, a.known, a.failed = next, true, false
	a.part.Store(a.takesPart(next))
	return nil
}

// takesPart reports whether other hosts wait for the host of slot s of this incarnation: the slot
// is not idle, or shows a removal.
func (a *slotStore) takesPart(s layout.Slot) bool {
	return s.Phase != layout.Idle || s.Creation > a.made
}

// sameLine reports whether a host that saw a waited for this one exactly as if it saw b. Then a may
// be an earlier own write that landed late.
func sameLine(a, b bakery.Slot) bool {
	if a.Phase >= layout.Waiting && b.Phase >= layout.Waiting { // these are ordered alike
		a.Phase = b.Phase
	}
	return a == b
}

// shows returns the own slot as last read or written. certain is false if it is not known, or its
// last write failed.
func (a *slotStore) shows() (s bakery.Slot, certain bool) {
	return protocolSlot(a.own), a.known && !a.failed
}
