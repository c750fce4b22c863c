package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/standing"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	minPoll = 50 * time.Microsecond // a shorter wait spins

	// The next in line, while nothing changes: its reads take a twentieth of the device's time, as
	// far as that permits a pause between minQuiet and maxQuiet.
	nextShare = 20
	minQuiet  = 2 * time.Millisecond
	maxQuiet  = 5 * time.Millisecond // for all others: for each host ahead

	maxRank = 250 * time.Millisecond // for any number of hosts ahead
	maxSlow = 3 * time.Second        // for them on a slow device, unless one read takes longer
)

// PollPause returns the wait before the next read of a slot. quiet is the time since the hosts ahead
// last changed: so long the lock has been held, as far as the disk shows that. latency is that of the
// device, and rank the number of hosts ahead.
//
// The next in line adds about one percent to a hold. It notices the end of a short one at the
// device's latency, however long it waited for other hosts before, and a long one costs the device
// little. A host further back must notice that a host ahead has gone before the next one has. It
// expects holds like the present one, and leaves most of the reads to those before it. One read may
// have taken 30 s because a path to the device failed over. maxSlow keeps that from delaying the next
// read by a multiple of it.
func PollPause(quiet, latency time.Duration, rank int) time.Duration {
	if rank <= 1 {
		most := max(min(max(nextShare*latency, minQuiet), maxQuiet), latency)
		return min(max(quiet/64, latency/2, minPoll), most)
	}
	others := time.Duration(rank - 1) // to go before this host is the next
	slow := min(others*max(latency, minPoll)*3/2, max(latency, maxSlow))
	return max(min(others*min(quiet, time.Second)/4, time.Duration(rank)*maxQuiet, maxRank), slow)
}

// quiet is the time since the hosts ahead on the disk last changed.
type quiet struct {
	began, since time.Time // of the wait; of the last change
	host, rank   int
}

// last returns the time in a wait that began then, at an action to poll.
func (q *quiet) last(began time.Time, a bakery.Action) time.Duration {
	now := time.Now()
	switch {
	case !began.Equal(q.began):
		*q = quiet{began: began, since: began, host: a.Host, rank: a.Rank}
	case a.Host != q.host || a.Rank != q.rank:
		q.since, q.host, q.rank = now, a.Host, a.Rank
	}
	return now.Sub(q.since)
}

const (
	// bytes: one read of this size takes less time than a read of one sector and then one of all
	nextRead  = 32 << 10
	cheapRead = 128 << 10 // bytes: a read of this size takes little longer than one of a sector
	rankPolls = 4         // beyond cheapRead, every rankPolls-th poll determines the rank
)

// readsAll reports whether to read all slots instead of the one directly ahead. The next host in
// line enters by that very read. For a host further back, the slot ahead stays unchanged while
// those before it go. Its rank and its polling rate would not change either.
func readsAll(rank, polls, bytes int) bool {
	if rank <= 1 {
		return bytes <= nextRead
	}
	return bytes <= cheapRead || polls%rankPolls == 0
}

// alreadyOver is the timer channel of a wait that was a spin. Events that came during the spin are
// noticed at the next wait at the latest.
var alreadyOver = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// poll waits, then reads the slot that the machine waits for. A client that leaves, or a host that
// ends, wakes it early.
func (lk *Lock) poll(a bakery.Action, began time.Time, wanted func() bool) (bakery.Action, error) {
	lk.Queue.Tell(a.Rank)
	lk.reportAhead(a)
	lk.complain(a.Host)
	lk.host.Member.Watch(lk.host.Disk.Times().Watch())
	if again, err := lk.waitPoll(PollPause(lk.quiet.last(began, a), lk.slots.Latency, a.Rank), wanted); err != nil {
		return a, err
	} else if again {
		return lk.m.Recheck(), nil
	}
	if lk.scrub.Swap(false) {
		if err := lk.rewrite(); err != nil {
			return a, err
		}
	}
	lk.polls++
	if a.Host == 0 || a.Enters && readsAll(a.Rank, lk.polls, lk.host.Member.Highest()*lk.host.Disk.SB.Geometry.Stride) {
		return lk.m.Recheck(), nil
	}
	var v bakery.View
	err := lk.persist("reading a slot failed, retrying", lk.slots.At(a.Host), func() (err error) {
		v, err = lk.slots.ReadOne(a.Host)
		return err
	})
	if err != nil {
		return a, err
	}
	return lk.m.Polled(v), nil
}

// waitPoll waits for pause. again reports whether an event requires an immediate read.
func (lk *Lock) waitPoll(pause time.Duration, wanted func() bool) (again bool, err error) {
	var over <-chan time.Time
	if lk.host.Disk.Clock.Spin(pause) {
		over = alreadyOver
	} else {
		lk.timer.Reset(pause)
		defer lk.timer.Stop()
		over = lk.timer.C
	}
	for {
		select {
		case <-lk.host.Lost:
			return false, api.ErrLeaseLost
		case <-lk.Queue.Wake:
			if !wanted() {
				lk.m.Cancel()
				return true, nil
			}
			continue
		case task := <-lk.tasks:
			if err := task(); err != nil {
				return false, err
			}
			continue
		case <-lk.hostTableChanged: // also closed while the device was read
			_, lk.hostTableChanged = lk.host.Member.LeaseLeft()
			if lk.applyHostTable() {
				return true, nil
			}
			continue
		case <-over:
			return false, nil
		}
	}
}

// applyHostTable applies the host table: it reports to the machine which incarnations are over, by a
// table whose read began when that of the slots had ended. It reports whether to read the slots again.
// A table that was read meanwhile may be older than the slot of a host that has joined:
//
//	this host                      a new host y
//	begins to read the slots
//	reads the table: no y
//	                               joins; claims the lock
//	has read the slots: y claims
//	y is over: enters next to y
func (lk *Lock) applyHostTable() bool {
	hosts, _ := lk.host.Member.Known()
	ended, again := standing.EvaluateHostTable(lk.m, lk.host.ID, hosts, lk.host.Disk.SB.Policy, lk.slots.Views, lk.readAt, lk.evaluatedAt)
	for _, o := range ended {
		v := lk.slots.Views[o.Host-1]
		if hosts[o.Host-1].State != layout.StateLeft && (!v.Readable || v.Slot.Phase != layout.Idle && v.Slot.Incarnation == o.Incarnation) {
			lk.host.Observer.Recovered() // it took part in the lock, as last read
		}
		lk.m.Over(o.Host, o.Incarnation)
	}
	if again {
		lk.evaluatedAt = standing.TableRead(hosts)
	}
	return again
}

// heal checks the own slot while no client waits for the lock, and rewrites it if it is unreadable.
// Only this host may rewrite it, and all others wait for it.
func (lk *Lock) heal() error {
	if !lk.m.Attached() {
		_, err := lk.protocol(lk.m.Attach(), always)
		return err
	}
	return lk.rewrite()
}

// errTooLate is returned if the lease has no time for a write.
var errTooLate = errors.New("the lease has no time for a write")

// rewrite writes the own slot as it is, if it is unreadable, until it is readable. Other hosts wait
// for an unreadable slot, so this counts as IO that does not succeed. It writes at most once per
// renewal interval. A failed rewrite may have landed, so it is repeated until one succeeds.
func (lk *Lock) rewrite() error {
	var v bakery.View
	written := time.Duration(-1)
	err := lk.persist("own slot is unreadable after a write, retrying", lk.slots.At(lk.host.ID), func() (err error) {
		if v, err = lk.slots.ReadOne(lk.host.ID); err != nil || v.Readable && !lk.slots.Failed {
			return err
		}
		// the read may have taken until the end of the lease (LAST-CALL)
		now := lk.host.Disk.Clock.Now()
		if ok, _ := lk.host.Member.MayWrite(now); !ok {
			return errTooLate
		}
		if written < 0 || lk.slots.Failed || now-written >= lk.host.Disk.Times().Renew() {
			if written < 0 {
				lk.host.Observer.Trouble("own slot is unreadable, rewriting it", lk.Entry, "host", lk.host.ID)
			}
			written = now
			if err = lk.slots.Write(lk.m.OwnSlot(), lk.Queue.Holder(lk.m.OwnSlot().Phase)); err != nil {
				return err
			}
			v, err = lk.slots.ReadOne(lk.host.ID)
		}
		if err == nil && !v.Readable {
			err = fmt.Errorf("own slot in lock %d: %w", lk.Entry.Lock, api.ErrUnreadable)
		}
		return err
	})
	if err != nil {
		return err
	}
	return lk.intact(v)
}

// CheckOwn has the driver check the own slot. With blocking, it counts as blocking another host until
// it was read.
func (lk *Lock) CheckOwn(blocking bool) {
	if blocking {
		lk.slots.Suspect()
	}
	lk.scrub.Store(true)
	lk.Queue.Signal()
}

// complain requests repair of a slot that blocks this host, in its host record; of all unreadable
// slots if host is 0.
func (lk *Lock) complain(host int) {
	for i, v := range lk.slots.Views {
		if !v.Readable && i+1 != lk.host.ID && (host == 0 || host == i+1) {
			lk.host.Member.HeldUp(layout.Complaint{Host: i + 1, Lock: lk.Entry.Lock}, false)
		}
	}
}
