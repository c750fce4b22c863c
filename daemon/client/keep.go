package client

import (
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/clock"
)

const (
	// maxIdle is how many links are kept for the next lock, and idleFor how long.
	maxIdle = 16
	idleFor = 10 * time.Second

	// attendAfter is how long a hold lasts before somebody listens to what bakeryd says of it: most are over by then.
	attendAfter = 5 * time.Millisecond
)

// keeper is what a client keeps for all of its holds, so that one that is short needs nothing of its own: idle links, the
// alarm for the deadlines, and a timer for what has time.
//
// Its mutex is taken with a hold's held, never the other way round.
type keeper struct {
	mu    sync.Mutex // guards the rest
	idle  []*link    // the last one was used last
	holds map[*Hold]struct{}
	alarm clock.Alarm   // nil: nothing is held, or kept
	rings time.Duration // what the alarm is set to; 0: it is not set

	young  map[*Hold]time.Time // when they are to be attended to
	timer  *time.Timer
	wakeAt time.Time // zero: the timer is not set
}

// takeLink returns a link that is open, nil if there is none.
func (c *Client) takeLink() *link {
	k := &c.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.idle)
	if n == 0 {
		return nil
	}
	l := k.idle[n-1]
	k.idle[n-1] = nil
	k.idle = k.idle[:n-1]
	return l
}

// leaveLink keeps a link for the next lock, if there are not too many.
func (c *Client) leaveLink(l *link) {
	k := &c.keeper
	k.mu.Lock()
	full := len(k.idle) >= maxIdle
	if !full {
		l.idle = time.Now()
		k.idle = append(k.idle, l)
		k.wakeBy(l.idle.Add(idleFor), c)
	}
	k.mu.Unlock()
	if full {
		_ = l.conn.Close() // nothing is held by it
	}
}

// Close gives back what is kept for the next lock: idle connections, and a timer once nothing is held. Holds stand, and
// the client may be used on. A client that is not used gives all that back by itself, within seconds.
func (c *Client) Close() { c.closeIdle(func(*link) bool { return true }) }

func (c *Client) closeIdle(which func(*link) bool) {
	k := &c.keeper
	k.mu.Lock()
	kept, closed := k.idle[:0], []*link(nil)
	for _, l := range k.idle {
		if which(l) {
			closed = append(closed, l)
		} else {
			kept = append(kept, l)
		}
	}
	clear(k.idle[len(kept):])
	k.idle = kept
	k.rest()
	k.mu.Unlock()
	for _, l := range closed {
		_ = l.conn.Close() // nothing is held by it
	}
}

// rest gives the alarm back when it may not be needed soon. It is called with mu held.
func (k *keeper) rest() {
	if len(k.holds) == 0 && len(k.idle) == 0 && k.alarm != nil {
		k.alarm.Close()
		k.alarm, k.rings = nil, 0
	}
}

// add has a hold rung for, and attended to at that moment.
func (c *Client) add(h *Hold, due time.Duration, attend time.Time) error {
	k := &c.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alarm == nil {
		a, err := clock.Boottime.NewAlarm()
		if err != nil {
			return err
		}
		k.alarm = a
		go c.watch(a)
	}
	if k.holds == nil {
		k.holds, k.young = map[*Hold]struct{}{}, map[*Hold]time.Time{}
	}
	k.holds[h] = struct{}{}
	if err := k.ringBy(due); err != nil {
		delete(k.holds, h)
		k.rest()
		return err
	}
	k.young[h] = attend
	k.wakeBy(attend, c)
	return nil
}

// remove forgets a hold that is over.
func (c *Client) remove(h *Hold) {
	k := &c.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.holds, h)
	delete(k.young, h)
	k.rest()
}

// attendBy has a hold attended to at a moment, if nobody does yet.
func (c *Client) attendBy(h *Hold, at time.Time) {
	k := &c.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	k.young[h] = at
	k.wakeBy(at, c)
}

// ringFor has a hold rung for, if it is not over.
func (c *Client) ringFor(h *Hold, due time.Duration) error {
	k := &c.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.holds[h]; !ok {
		return nil
	}
	return k.ringBy(due)
}

// ringBy is called with mu held.
func (k *keeper) ringBy(due time.Duration) error {
	due = max(due, 1)
	if k.rings != 0 && k.rings <= due {
		return nil
	}
	if err := k.alarm.Set(due); err != nil {
		return err
	}
	k.rings = due
	return nil
}

// watch waits for the alarm, and does no IO but for that, so nothing that bakeryd does holds it up.
func (c *Client) watch(a clock.Alarm) {
	for a.Wait() == nil {
		k := &c.keeper
		k.mu.Lock()
		if k.alarm != a {
			k.mu.Unlock()
			return
		}
		k.rings = 0
		all := make([]*Hold, 0, len(k.holds))
		for h := range k.holds {
			all = append(all, h)
		}
		k.mu.Unlock()
		for _, h := range all {
			h.rung()
		}
	}
}

// wakeBy has the timer ring. It is called with mu held.
func (k *keeper) wakeBy(at time.Time, c *Client) {
	if !k.wakeAt.IsZero() && !at.Before(k.wakeAt) {
		return
	}
	k.wakeAt = at
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Until(at), c.attend)
		return
	}
	k.timer.Reset(time.Until(at))
}

// attend does what it is time for.
func (c *Client) attend() {
	now := time.Now()
	c.closeIdle(func(l *link) bool { return now.Sub(l.idle) >= idleFor })
	k := &c.keeper
	var due []*Hold
	k.mu.Lock()
	k.wakeAt = time.Time{}
	for h, at := range k.young {
		if at.After(now) {
			k.wakeBy(at, c)
			continue
		}
		due = append(due, h)
		delete(k.young, h)
	}
	if len(k.idle) > 0 {
		k.wakeBy(k.idle[0].idle.Add(idleFor), c)
	}
	k.mu.Unlock()
	for _, h := range due {
		h.attend()
	}
}
