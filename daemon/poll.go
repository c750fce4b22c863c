package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/standing"
)

const (
	minPoll = 50 * time.Microsecond  // below it a wait is a spin
	maxPoll = 5 * time.Millisecond   // of the first in line
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
	nextRead  = 32 << 10  // bytes: to read so many takes less than to read one sector and then all
	cheapRead = 128 << 10 // bytes: to read so many takes little longer than one sector does
	rankPolls = 4         // and if it is more, the rank is looked at in every so many polls
)

// readsAll tells whether to read all slots rather than the one directly ahead.
// Who is next enters by that read, without another one. For who is further back
// that slot stays as it is while those before it go, and the pace of the polls
// with it.
func readsAll(rank, polls, bytes int) bool {
	if rank <= 1 {
		return bytes <= nextRead
	}
	return bytes <= cheapRead || polls%rankPolls == 0
}

// alreadyOver is what a spin leaves of a wait: at the next one at the latest,
// what came meanwhile is noticed.
var alreadyOver = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// poll waits a little, then looks at the slot that the machine waits for. A
// client that goes, or a host that ends, wakes it early.
func (lk *lock) poll(a bakery.Action, began time.Time, wanted func() bool) (bakery.Action, error) {
	lk.tell(a.Rank)
	lk.noteAhead(a)
	lk.complain(a.Host)
	lk.d.mem.watch(lk.d.times().Watch())
	if again, err := lk.linger(pollPause(time.Since(began), lk.area.latency, a.Rank), wanted); err != nil {
		return a, err
	} else if again {
		return lk.m.Recheck(), nil
	}
	if lk.takeScrub() {
		if err := lk.rewrite(); err != nil {
			return a, err
		}
	}
	lk.polls++
	if a.Host == 0 || a.Enters && readsAll(a.Rank, lk.polls, lk.d.mem.highest()*lk.d.sb.Geometry.Stride) {
		return lk.m.Recheck(), nil
	}
	var v bakery.View
	err := lk.persist("reading a slot failed, retrying", lk.area.slotAt(a.Host), func() (err error) {
		v, err = lk.area.readOne(a.Host)
		return err
	})
	if err != nil {
		return a, err
	}
	return lk.m.Polled(v), nil
}

// linger waits for as long as pause; again tells that something came that is
// reason to look at once.
func (lk *lock) linger(pause time.Duration, wanted func() bool) (again bool, err error) {
	var over <-chan time.Time
	if lk.d.clock.Spin(pause) {
		over = alreadyOver
	} else {
		lk.timer.Reset(pause)
		defer lk.timer.Stop()
		over = lk.timer.C
	}
	for {
		select {
		case <-lk.d.mem.lost:
			return false, api.ErrLeaseLost
		case <-lk.wake:
			if !wanted() {
				lk.m.Cancel()
				return true, nil
			}
			continue
		case todo := <-lk.tasks:
			if err := todo.run(); err != nil {
				return false, err
			}
			continue
		case <-lk.news: // also of what came while the device was read
			_, lk.news = lk.d.mem.leaseLeft()
			if lk.learn() {
				return true, nil
			}
			continue
		case <-over:
			return false, nil
		}
	}
}

// learn tells the machine which incarnations are over by a host table read
// after the slots. It reports whether the slots should be looked at again.
func (lk *lock) learn() bool {
	hosts, _ := lk.d.mem.known()
	news := standing.EvaluateHostTable(lk.m, lk.area.host, hosts, lk.d.sb.Policy, lk.area.views, lk.readAt, lk.judgedAt)
	for _, o := range news.Over {
		lk.countGone(hosts[o.Host-1], lk.area.views[o.Host-1], o.Incarnation)
		lk.m.Over(o.Host, o.Incarnation)
	}
	if news.Again {
		lk.judgedAt = standing.TableRead(hosts)
	}
	return news.Again
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

// errTooLate is returned if the lease has no time for a write.
var errTooLate = errors.New("the lease has no time for a write")

// rewrite writes the own slot as it is, if it cannot be read, until it can: others wait for an unreadable slot, so it
// counts as IO that does not succeed. It is rewritten no more often than hosts renew. A rewrite that failed may have
// landed: it is repeated until one succeeds.
func (lk *lock) rewrite() error {
	var v bakery.View
	written := time.Duration(-1)
	err := lk.persist("the own slot cannot be read after it was written, retrying", lk.area.slotAt(lk.area.host), func() (err error) {
		if v, err = lk.area.readOne(lk.area.host); err != nil || v.Readable && !lk.area.failed {
			return err
		}
		if ok, _ := lk.d.mem.mayWrite(); !ok { // the read may have taken until the end of the lease (LAST-CALL)
			return errTooLate
		}
		if now := lk.d.clock.Now(); written < 0 || lk.area.failed || now-written >= lk.d.times().Renew() {
			if written < 0 {
				lk.d.log.Warn("own slot is unreadable, rewriting it", "lock", lk.entry.Name, "host_id", lk.area.host)
			}
			written = now
			if err = lk.area.write(lk.m.OwnSlot(), lk.holder(lk.m.OwnSlot().Phase)); err != nil {
				return err
			}
			v, err = lk.area.readOne(lk.area.host)
		}
		if err == nil && !v.Readable {
			err = fmt.Errorf("own slot in lock %d: %w", lk.entry.Lock, api.ErrUnreadable)
		}
		return err
	})
	if err != nil {
		return err
	}
	return lk.intact(v)
}
