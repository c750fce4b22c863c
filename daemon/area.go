package daemon

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// area is the slots of one lock as one host reads and writes them. One
// goroutine uses it.
type area struct {
	dev   blockdev.Device
	space layout.Space
	lock  int
	host  int
	mine  uint64 // this host's incarnation
	made  uint64 // creation of the lock's entry

	own     layout.Slot // as last written, or found
	known   bool        // own has been read once
	views   []bakery.View
	latency time.Duration // of the last read

	who []layout.Holder // as last shown, by host id - 1; those of the end may be missing
}

func newArea(dev blockdev.Device, space layout.Space, lock, host int) *area {
	return &area{dev: dev, space: space, lock: lock, host: host}
}

// read reads the slots of hosts 1..n in one request. The result is good until
// the next call.
func (a *area) read(n int) ([]bakery.View, error) {
	n = max(n, a.host)
	stride := a.space.Geometry.Stride
	buf := pool.Get(n * stride)
	defer pool.Put(buf)
	start := time.Now()
	errs, err := readRecords(a.dev, buf, a.space.Geometry.Slot(a.lock, 1), stride)
	if err != nil {
		return nil, fmt.Errorf("read the slots of lock %d: %w", a.lock, err)
	}
	a.latency = time.Since(start)
	a.views = a.views[:0]
	for i := range n {
		a.views = append(a.views, a.view(buf[i*stride:(i+1)*stride], i+1, errs[i]))
	}
	return a.views, nil
}

// readOne reads the slot of one host.
func (a *area) readOne(host int) (bakery.View, error) {
	buf := pool.Get(a.space.Geometry.Stride)
	defer pool.Put(buf)
	start := time.Now()
	err := a.dev.Read(buf, a.space.Geometry.Slot(a.lock, host))
	if err != nil && !badSector(err) {
		return bakery.View{}, fmt.Errorf("read the slot of host %d in lock %d: %w", host, a.lock, err)
	}
	a.latency = time.Since(start)
	return a.view(buf, host, err), nil
}

func (a *area) view(sector []byte, host int, err error) bakery.View {
	if err != nil {
		return bakery.View{}
	}
	s, err := a.space.DecodeSlot(sector, a.lock, host)
	if err != nil {
		return bakery.View{}
	}
	a.shown(host, s.Holder)
	if host == a.host && !a.known {
		a.own, a.known = s, true
		// What an earlier incarnation intended has come about or never will: it
		// had nothing under way any more when its id was taken on.
		if a.lock == directoryLock && s.Incarnation != a.mine {
			a.own.Value, a.own.ValueToken = nil, 0
		}
		if s.Creation < a.made {
			a.own.Request = layout.Request{}
		}
		// That of a lock which had this place before is nobody's any more.
		if a.lock != directoryLock && !s.ValueOf(a.made) {
			a.own.Value, a.own.ValueToken = nil, 0
		}
	}
	return bakery.View{Readable: true, Slot: protocolSlot(s)}
}

// shown keeps who holds by a slot, which the protocol does not know of.
func (a *area) shown(host int, who layout.Holder) {
	if host > len(a.who) {
		if who.PID == 0 && who.Command == "" {
			return
		}
		a.who = append(a.who, make([]layout.Holder, host-len(a.who))...)
	}
	a.who[host-1] = who
}

func protocolSlot(s layout.Slot) bakery.Slot {
	return bakery.Slot{Incarnation: s.Incarnation, Creation: s.Creation, Ticket: s.Ticket, Phase: s.Phase, Mode: s.Mode}
}

// write writes the own slot durably, in one request; what the protocol does
// not know of, the value and the request, stays.
func (a *area) write(s bakery.Slot, who layout.Holder) error {
	next := a.own
	next.Lock, next.Host = a.lock, a.host
	next.Incarnation, next.Creation = s.Incarnation, s.Creation
	next.Ticket, next.Phase, next.Mode = s.Ticket, s.Phase, s.Mode
	next.Holder = who
	next.Sequence++
	buf := pool.Get(a.space.Geometry.Stride)
	defer pool.Put(buf)
	if err := a.space.EncodeSlot(buf, next); err != nil {
		return fmt.Errorf("encode slot: %w", err)
	}
	if err := a.dev.Write(buf, a.space.Geometry.Slot(a.lock, a.host)); err != nil {
		return fmt.Errorf("write the slot of host %d in lock %d: %w", a.host, a.lock, err)
	}
	a.own, a.known = next, true
	return nil
}
