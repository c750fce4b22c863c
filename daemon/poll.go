package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/bakery"
)

const (
	minPoll = 50 * time.Microsecond  // below it a wait is a spin
	maxPoll = 20 * time.Millisecond  // of the first in line
	maxRank = 250 * time.Millisecond // of anybody
)

// pollPause is how long to wait before the next look at a slot. It follows
// the device's latency and grows with the time waited so far, of which it
// adds about one percent: a short wait ends soon after the release, a long
// one costs the device little. Those further back wait in proportion.
func pollPause(waited, latency time.Duration, rank int) time.Duration {
	p := max(minPoll, latency, min(waited/64, maxPoll))
	return min(p*time.Duration(rank), max(maxRank, p))
}

const (
	cheapRead = 128 << 10 // bytes: to read so many takes about as long as one sector does
	rankPolls = 4         // and if it is more, the rank is looked at in every so many polls
)

// rankIsOld tells whether to read all slots rather than the one directly ahead:
// that one stays as it is while those before it go, and the pace of the polls
// with it. Who is next has no rank that could get less.
func rankIsOld(rank, polls, bytes int) bool {
	return rank > 1 && (bytes <= cheapRead || polls%rankPolls == 0)
}

// poll waits a little, then looks at the slot that the machine waits for. A
// client that goes, or a host that ends, wakes it early.
func (lk *lock) poll(a bakery.Action, began time.Time, wanted func() bool) (bakery.Action, error) {
	lk.told(a.Rank)
	lk.noteAhead(a)
	lk.d.mem.watch(lk.d.times().Watch())
	t := time.NewTimer(pollPause(time.Since(began), lk.area.latency, a.Rank))
	defer t.Stop()
	for {
		select {
		case <-lk.d.mem.lost:
			return a, ErrLost
		case <-lk.wake:
			if !wanted() {
				lk.m.Cancel()
				return lk.m.Recheck(), nil
			}
			continue
		case todo := <-lk.tasks:
			if err := todo.run(); err != nil {
				return a, err
			}
			continue
		case <-lk.news: // also of what came while the device was read
			_, lk.news = lk.d.mem.leaseLeft()
			if !lk.learn() {
				continue
			}
			return lk.m.Recheck(), nil
		case <-t.C:
		}
		break
	}
	if lk.takeScrub() {
		if err := lk.rewrite(); err != nil {
			return a, err
		}
	}
	lk.polls++
	if rankIsOld(a.Rank, lk.polls, lk.d.mem.highest()*lk.d.sb.Geometry.Stride) {
		return lk.m.Recheck(), nil
	}
	if a.Host == 0 {
		views, err := lk.readAll()
		if err != nil {
			return a, err
		}
		return lk.m.SlotsRead(views), nil
	}
	var v bakery.View
	err := lk.persist("reading a slot failed, retrying", func() (err error) {
		v, err = lk.area.readOne(a.Host)
		return err
	})
	if err != nil {
		return a, err
	}
	return lk.m.Polled(v), nil
}

// learn tells the machine which incarnations are over by a host table read
// after the slots. It reports whether the slots should be looked at again.
func (lk *lock) learn() bool {
	hosts, _ := lk.d.mem.known()
	again := false
	for i, v := range lk.area.views {
		h := hosts[i]
		current := lk.m.Current(i + 1)
		// That this very incarnation is gone stays true, whenever it was read.
		if current != 0 && (h.Incarnation == current && h.Gone || h.Read > lk.readAt && h.Void(current)) {
			lk.m.Over(i+1, current)
			again = true
		}
		if h.Read <= lk.readAt {
			continue
		}
		// What could not be told by an earlier table may be told by this one.
		unclear := !v.Readable || v.Slot.Phase != 0 && v.Slot.Incarnation != current
		again = again || unclear && i+1 != lk.area.host && h.Read > lk.judgedAt
	}
	if again {
		lk.judgedAt = tableRead(hosts)
	}
	return again
}

// takeScrub tells whether the own slot is to be looked at, once.
func (lk *lock) takeScrub() bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	due := lk.scrub
	lk.scrub = false
	return due
}

// heal looks at the own slot while nothing is wanted of the lock, and
// rewrites it if it has gone bad: nobody else may, and all others wait for it.
func (lk *lock) heal() error {
	if !lk.m.Attached() {
		_, err := lk.protocol(lk.m.Attach(), func() bool { return true })
		return err
	}
	return lk.rewrite()
}

// rewrite writes the own slot as it is, if it has gone bad.
func (lk *lock) rewrite() error {
	v := bakery.View{}
	err := lk.persist("reading the own slot failed, retrying", func() (err error) {
		v, err = lk.area.readOne(lk.area.host)
		return err
	})
	if err != nil || v.Readable {
		return err
	}
	lk.d.log.Warn("own slot is unreadable, rewriting it", "lock", lk.entry.Name, "host_id", lk.area.host)
	return lk.write(lk.m.Mine())
}
