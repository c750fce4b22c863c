package client

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/clock"
)

const (
	// maxIdle is how many links are kept for the next lock, and idleFor for how long.
	maxIdle = 16
	idleFor = 10 * time.Second

	// readerAfter is the age at which a hold gets a reader for bakeryd's events. Most holds end
	// before.
	readerAfter = 5 * time.Millisecond
)

// pool is what the holds of a client share: idle links, the alarm for the deadlines, and a timer for
// what is less urgent. With a timer of its own each hold would wake the runtime's poller.
//
// mu may be acquired while a Hold's mu is held, never the other way round.
type pool struct {
	mu    sync.Mutex // guards the fields below
	idle  []*link    // in the order of their last use
	holds map[*Hold]struct{}
	alarm clock.Alarm   // nil: no hold, no idle link
	rings time.Duration // when the alarm is set to ring; 0: not set

	newHolds map[*Hold]time.Time // when their onTimer is to be called
	timer    *time.Timer
	wakeAt   time.Time // zero: the timer is not set
}

// takeLink removes an open link from the pool and returns it, nil if none.
func (k *pool) takeLink() (l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.idle); n > 0 {
		l = k.idle[n-1]
		k.idle = slices.Delete(k.idle, n-1, n)
	}
	return l
}

// putLink keeps a link for the next lock, or closes it if maxIdle are kept.
func (k *pool) putLink(l *link) {
	k.mu.Lock()
	full := len(k.idle) >= maxIdle
	if !full {
		l.idle = time.Now()
		k.idle = append(k.idle, l)
		k.wakeBy(l.idle.Add(idleFor))
	}
	k.mu.Unlock()
	if full {
		_ = l.conn.Close() // no hold uses it
	}
}

// Close closes the idle connections, and the alarm if nothing is held. Holds stay valid, and the
// client can still be used. An unused client does the same by itself after 10 s.
func (c *Client) Close() { c.closeIdle(time.Now()) }

// closeIdle closes the links that are idle since that time or longer.
func (k *pool) closeIdle(since time.Time) {
	k.mu.Lock()
	n := 0
	for n < len(k.idle) && !k.idle[n].idle.After(since) {
		n++
	}
	closed := slices.Clone(k.idle[:n])
	k.idle = slices.Delete(k.idle, 0, n)
	k.closeUnusedAlarm()
	k.mu.Unlock()
	for _, l := range closed {
		_ = l.conn.Close() // no hold uses it
	}
}

// closeUnusedAlarm closes the alarm if there are no holds and no idle links. It is called with mu
// held.
func (k *pool) closeUnusedAlarm() {
	if len(k.holds) == 0 && len(k.idle) == 0 && k.alarm != nil {
		k.alarm.Close()
		k.alarm, k.rings = nil, 0
	}
}

// add registers a hold: for the alarm at due, and for the timer at timerAt.
func (k *pool) add(h *Hold, due time.Duration, timerAt time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alarm == nil {
		a, err := clock.Boottime.NewAlarm()
		if err != nil {
			return err
		}
		k.alarm = a
		go k.watch(a)
	}
	if err := k.ringBy(due); err != nil {
		k.closeUnusedAlarm()
		return err
	}
	k.holds[h], k.newHolds[h] = struct{}{}, timerAt
	k.wakeBy(timerAt)
	return nil
}

// remove forgets a hold that is over.
func (k *pool) remove(h *Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.holds, h)
	delete(k.newHolds, h)
	k.closeUnusedAlarm()
}

// callAt sets when the timer calls the hold's onTimer.
func (k *pool) callAt(h *Hold, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newHolds[h] = at
	k.wakeBy(at)
}

// ringFor sets the alarm for a hold, if it is not over.
func (k *pool) ringFor(h *Hold, due time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.holds[h]; !ok {
		return nil
	}
	return k.ringBy(due)
}

// ringBy sets the alarm, unless it rings earlier. It is called with mu held.
func (k *pool) ringBy(due time.Duration) error {
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

// watch waits for the alarm. It does no other IO, so a slow bakeryd cannot delay it.
func (k *pool) watch(a clock.Alarm) {
	for a.Wait() == nil {
		k.mu.Lock()
		if k.alarm != a {
			k.mu.Unlock()
			return
		}
		k.rings = 0
		all := slices.Collect(maps.Keys(k.holds))
		k.mu.Unlock()
		for _, h := range all {
			h.onAlarm()
		}
	}
}

// wakeBy sets the timer, unless it fires earlier. It is called with mu held.
func (k *pool) wakeBy(at time.Time) {
	if !k.wakeAt.IsZero() && !at.Before(k.wakeAt) {
		return
	}
	k.wakeAt = at
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Until(at), k.onTimer)
		return
	}
	k.timer.Reset(time.Until(at))
}

// onTimer closes links that were idle for idleFor and calls onTimer of the holds that are due.
func (k *pool) onTimer() {
	now := time.Now()
	k.closeIdle(now.Add(-idleFor))
	var due []*Hold
	k.mu.Lock()
	k.wakeAt = time.Time{}
	for h, at := range k.newHolds {
		if at.After(now) {
			k.wakeBy(at)
			continue
		}
		due = append(due, h)
		delete(k.newHolds, h)
	}
	if len(k.idle) > 0 {
		k.wakeBy(k.idle[0].idle.Add(idleFor))
	}
	k.mu.Unlock()
	for _, h := range due {
		h.onTimer()
	}
}
