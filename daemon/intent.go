package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// A write of the directory that is under way when its host dies may land at
// any time, on top of what others wrote there since. So an intent goes before
// each: see [layout.Intent]. It is read and written under the internal lock.

// intend makes an intent durable: from here on everybody knows what may come.
func (lk *lock) intend(e layout.Entry) error {
	return lk.do(func() error {
		lk.area.own.Value, lk.intends = layout.Intent(e).Value(), true
		_, err := lk.protocol(lk.m.Settle(), func() bool { return true })
		return err
	})
}

// intended takes the intent back; the release makes that durable.
func (lk *lock) intended() error {
	return lk.do(func() error {
		lk.area.own.Value, lk.intends = nil, false
		return nil
	})
}

// ownIntent is one that this incarnation was not able to carry out: a write of
// it that failed may yet land. One to clear an entry counts for nothing if it
// is of a process before this one: nothing of that is under way any more, and
// its removal was taken back (restore.go), unless it was through.
func (lk *lock) ownIntent() (i layout.Intent, found bool, err error) {
	err = lk.do(func() error {
		own := &lk.area.own
		if len(own.Value) == 0 {
			return nil
		}
		i, err = lk.d.sb.Space().DecodeIntent(own.Value)
		if err == nil && layout.Entry(i).Free() && !lk.intends {
			own.Value = nil
			return nil
		}
		found = err == nil
		return err
	})
	return i, found, err
}

// carryOut writes what this host was about to write and could not: before it
// intends anything else, for there is room for one intent only.
func (d *Daemon) carryOut(guard *lock) error {
	i, found, err := guard.ownIntent()
	if err != nil || !found {
		return err
	}
	if err := d.writeEntry(guard.dev, layout.Entry(i)); err != nil {
		return err
	}
	return guard.intended()
}

// keepIntents takes back what a bakeryd before this one left intended here, and
// what this one does: the others go by it until it is gone from the slot.
func (d *Daemon) keepIntents() {
	for {
		again := d.stayed
		var retry <-chan time.Time
		if !d.takeBackIntent() {
			again, retry = nil, time.After(d.sb.Lease/2)
		}
		select {
		case <-again:
		case <-retry:
		case <-d.stop:
			return
		case <-d.mem.lost:
			return
		}
	}
}

// takeBackIntent tells whether there is none any more.
func (d *Daemon) takeBackIntent() bool {
	_, found, err := d.intentOf(d.dev, d.mem.id())
	if err == nil && !found {
		return true
	}
	err = d.guarded(context.Background(), "take back an intent", d.carryOut)
	if err != nil && !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrStuck) {
		d.log.Warn("taking back what was about to be written into the directory failed, retrying", "err", err)
	}
	return err == nil
}

// intentOf reads the intent of one host.
func (d *Daemon) intentOf(dev blockdev.Device, host int) (i layout.Intent, found bool, err error) {
	g, space := d.sb.Geometry, d.sb.Space()
	buf := lockspace.Pool.Get(g.Stride)
	defer lockspace.Pool.Put(buf)
	if err := dev.Read(buf, g.Slot(lockspace.DirectoryLock, host)); err != nil {
		return i, false, fmt.Errorf("read the slot of host %d in the directory's lock: %w", host, err)
	}
	s, err := space.DecodeSlot(buf, lockspace.DirectoryLock, host)
	if err != nil || len(s.Value) == 0 {
		return i, false, err
	}
	i, err = space.DecodeIntent(s.Value)
	return i, err == nil, err
}

// intents returns those of the other hosts. Where one cannot be read its host may be about to write anything, so that
// nothing can be created, unless that host is gone: see [member.gone].
func (d *Daemon) intents(dev blockdev.Device) ([]layout.Intent, error) {
	g := d.sb.Geometry
	n := max(d.mem.highest(), d.mem.id())
	buf := lockspace.Pool.Get(n * g.Stride)
	defer lockspace.Pool.Put(buf)
	for try := 1; ; try++ {
		found, bad, err := d.readIntents(dev, buf)
		if err == nil && (len(bad) == 0 || try == slotTries || d.stayLost(bad)) {
			if err = d.lostIntents(bad); err == nil || try == slotTries {
				return found, err
			}
		}
		for host := range bad {
			d.mem.heldUp(layout.Complaint{Host: host, Lock: lockspace.DirectoryLock}, false)
		}
		if try == slotTries {
			return nil, err
		}
		select {
		case <-time.After(d.retry()):
		case <-d.mem.lost:
			return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
		}
	}
}

// readIntents says of the hosts whose intents cannot be read why.
func (d *Daemon) readIntents(dev blockdev.Device, buf []byte) (found []layout.Intent, bad map[int]error, err error) {
	g, space := d.sb.Geometry, d.sb.Space()
	errs, err := lockspace.ReadRecords(dev, buf, g.Slot(lockspace.DirectoryLock, 1), g.Stride)
	if err != nil {
		return nil, nil, fmt.Errorf("read the slots of the directory's lock: %w", err)
	}
	bad = map[int]error{}
	for i := range errs {
		host := i + 1
		if host == d.mem.id() {
			continue
		}
		var s layout.Slot
		err := errs[i]
		if err == nil {
			s, err = space.DecodeSlot(buf[i*g.Stride:(i+1)*g.Stride], lockspace.DirectoryLock, host)
		}
		if err != nil {
			bad[host] = err
			continue
		}
		if len(s.Value) == 0 {
			continue
		}
		intent, err := space.DecodeIntent(s.Value)
		if err != nil {
			bad[host] = err
			continue
		}
		found = append(found, intent)
	}
	return found, bad, nil
}

// stayLost tells whether all of these intents were unreadable the last time too, after many tries, and their hosts gone.
func (d *Daemon) stayLost(bad map[int]error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for host := range bad {
		if d.lost[host] == nil {
			return false
		}
	}
	return true
}

// lostIntents returns an error if one of the hosts whose intents cannot be read may yet write into the directory.
func (d *Daemon) lostIntents(bad map[int]error) (err error) {
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.lost = bad; err != nil {
			d.lost = nil
		}
	}()
	for host, unreadable := range bad {
		gone, err := d.mem.gone(host, unreadable)
		if err != nil {
			return err
		}
		if !gone {
			return fmt.Errorf("%w: what host %d was about to write into the directory cannot be read (start bakeryd there, which rewrites it): %w",
				api.ErrDamaged, host, unreadable)
		}
	}
	return nil
}

// gone reports whether a host is gone whose intent could not be read before the call. It counts as having none then:
// that it died with a write of the directory under way, the intent of which has been lost since, is assumed not to
// happen (bakery/PROTOCOL.md).
func (mb *member) gone(host int, unreadable error) (bool, error) {
	hosts, _, err := mb.readHosts()
	if err != nil || host > len(hosts) || !hosts[host-1].Dead() {
		return false, err
	}
	known, _ := mb.known()
	mb.log.Warn("slot of a host that is gone is unreadable, going on as if it intended nothing",
		"lock", "the directory's", "host_id", host, "host", known[host-1].Name, "err", unreadable)
	return true, nil
}
