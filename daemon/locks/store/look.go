package store

import (
	"fmt"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Looks are the reads of all slots of a lock by which its holder looks for other hosts while clients
// come and go. A look runs in a goroutine of its own: no client waits for it unless it takes longer
// than the grants that are left. The driver owns the fields.
type Looks struct {
	Spare []bakery.View // memory for the next one
	Early int           // a look begins when this many grants need no other one

	last    *Look // in progress or not taken yet, nil if none
	running sync.WaitGroup
}

// Look is one of them. Its result may be read when Done is closed.
type Look struct {
	Dropped bool          // its hold has ended; owned by the driver
	Made    int           // grants made when it began
	Began   time.Duration // by the clock of the disk
	Done    chan struct{}

	Ended time.Duration
	Views []bakery.View // at host id - 1
	Alone bool          // no other host takes part in the lock, and no slot of one is unreadable
	Asked bool          // another host's slot has a request to the holders of the ticket
	Err   error
}

// Begin begins a look at the slots of hosts 1 to n. It returns false if one is in progress. hold is the
// own slot, of host own. Begin calls found if the look shows another host, or a request.
func (s *Looks) Begin(d Device, n, own int, hold bakery.Slot, made int, found func()) bool {
	if s.last != nil {
		return false
	}
	l := &Look{Made: made, Began: d.disk.Clock.Now(), Done: make(chan struct{}), Views: s.Spare}
	s.last, s.Spare = l, nil
	s.running.Go(func() {
		l.Err = l.read(d, n, own, hold)
		l.Ended = d.disk.Clock.Now()
		close(l.Done)
		if !l.Alone || l.Asked {
			found()
		}
	})
	return true
}

// Current returns the look of this hold that is in progress; nil if there is none.
func (s *Looks) Current() *Look {
	if s.last == nil || s.last.Dropped {
		return nil
	}
	return s.last
}

// Take returns a look once that has ended; nil if there is none.
func (s *Looks) Take() (l *Look) {
	if s.last != nil {
		select {
		case <-s.last.Done:
			l, s.last = s.last, nil
		default:
		}
	}
	return l
}

// Drop makes a look that is in progress one of an earlier hold.
func (s *Looks) Drop() {
	if s.last != nil {
		s.last.Dropped = true
	}
}

// Wait waits for the end of all looks.
func (s *Looks) Wait() { s.running.Wait() }

// read reads the slots. It reuses the memory of Views. A slot that the driver has seen written, and that
// is blank now, counts as idle: the driver's own reads find that. Disk.Stalls does not have the read,
// see Device.Await.
func (l *Look) read(d Device, n, own int, hold bakery.Slot) error {
	space := d.disk.SB.Space()
	stride := space.Geometry.Stride
	buf := lockspace.Pool.Get(n * stride)
	defer lockspace.Pool.Put(buf)
	bad, err := lockspace.ReadRecords(d.Device, buf, space.Geometry.Slot(d.lock, 1), stride)
	if err != nil {
		return fmt.Errorf("read the slots of lock %d: %w", d.lock, err)
	}
	l.Views, l.Alone, l.Asked = l.Views[:0], true, false
	var last layout.Slot
	for i := range n {
		err := bad[i]
		if err == nil {
			last, err = space.RedecodeSlot(last, buf[i*stride:(i+1)*stride], d.lock, i+1)
		}
		if err != nil {
			last = layout.Slot{}
			l.Views = append(l.Views, bakery.View{})
			l.Alone = l.Alone && i+1 == own
			continue
		}
		l.Views = append(l.Views, bakery.View{Readable: true, Slot: protocolSlot(last)})
		if i+1 != own {
			l.Alone = l.Alone && last.Phase == layout.Idle && last.Creation <= hold.Creation
			l.Asked = l.Asked || last.Request.Ticket >= hold.Ticket
		}
	}
	return nil
}
