package daemon

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// A write of the directory that is under way when its host dies may land at
// any time, on top of what others wrote there since. So an intent goes before
// each: see [layout.Intent]. It is read and written under the internal lock.

// intend makes an intent durable: from here on everybody knows what may come.
func (lk *lock) intend(e layout.Entry) error {
	return lk.do(func() error {
		lk.area.own.Value = layout.Intent(e).Value()
		_, err := lk.protocol(lk.m.Settle(), func() bool { return true })
		return err
	})
}

// intended takes the intent back; the release makes that durable.
func (lk *lock) intended() error {
	return lk.do(func() error {
		lk.area.own.Value = nil
		return nil
	})
}

// ownIntent is one that this incarnation was not able to carry out: a write of
// it that failed may yet land.
func (lk *lock) ownIntent() (i layout.Intent, found bool, err error) {
	err = lk.do(func() error {
		own := lk.area.own
		if len(own.Value) == 0 {
			return nil
		}
		found = true
		i, err = lk.d.sb.Space().DecodeIntent(own.Value)
		return err
	})
	return i, found, err
}

// intentTries is how often a slot is read that may be being written.
const intentTries = 10

// intents returns those of the other hosts. What a slot that cannot be read
// intends nobody knows: then nothing can be created.
func (d *Daemon) intents() ([]layout.Intent, error) {
	g := d.sb.Geometry
	n := max(d.mem.highest(), d.mem.id())
	buf := pool.Get(n * g.Stride)
	defer pool.Put(buf)
	for try := 1; ; try++ {
		found, err := d.readIntents(buf)
		if err == nil || try == intentTries {
			return found, err
		}
		select {
		case <-time.After(d.retry()):
		case <-d.mem.lost:
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, ErrLost)
		}
	}
}

func (d *Daemon) readIntents(buf []byte) (found []layout.Intent, err error) {
	g, space := d.sb.Geometry, d.sb.Space()
	errs, err := readRecords(d.dev, buf, g.Slot(directoryLock, 1), g.Stride)
	if err != nil {
		return nil, fmt.Errorf("read the slots of the directory's lock: %w", err)
	}
	for i := range errs {
		host := i + 1
		if host == d.mem.id() {
			continue
		}
		var s layout.Slot
		err := errs[i]
		if err == nil {
			s, err = space.DecodeSlot(buf[i*g.Stride:(i+1)*g.Stride], directoryLock, host)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: what host %d was about to create cannot be read (start bakeryd there, which rewrites it): %w", ErrDamaged, host, err)
		}
		if len(s.Value) == 0 {
			continue
		}
		intent, err := space.DecodeIntent(s.Value)
		if err != nil {
			return nil, fmt.Errorf("%w: slot of host %d in the directory's lock: %w", ErrDamaged, host, err)
		}
		found = append(found, intent)
	}
	return found, nil
}

// place returns the entry to write for a new lock: the very one that a dead
// host may still write for the same name, or one that nobody else writes.
func (d *Daemon) place(s *scan, intents []layout.Intent, e layout.Entry) (layout.Entry, error) {
	taken := map[int]bool{}
	for _, i := range intents {
		if i.Name == e.Name {
			return layout.Entry(i), nil
		}
		taken[i.Lock] = true
		e.Creation = max(e.Creation, i.Creation+1)
	}
	for _, o := range s.entries {
		if o.Free() && e.Lock == 0 && !taken[o.Lock] {
			e.Lock = o.Lock
		}
		e.Creation = max(e.Creation, o.Creation+1)
	}
	if e.Lock == 0 {
		return e, fmt.Errorf("%w: all %d entries are taken, no room for lock %q", ErrFull, d.sb.Geometry.Locks, e.Name)
	}
	return e, nil
}
