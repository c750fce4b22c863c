package client

import (
	"maps"
	"math"
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

// pool is what the holds of a client share: idle links, and the alarm for all that is due at some
// time. With a timer of its own each hold would wake the runtime's poller.
//
// mu may be acquired while a Hold's mu is held, never the other way round.
type pool struct {
	mu    sync.Mutex              // guards the fields below
	idle  []*link                 // in the order of their last use
	holds map[*Hold]time.Duration // when the alarm is for them, on boottime
	alarm clock.Alarm             // nil: no hold, no idle link
	rings time.Duration           // when the alarm is set to ring; 0: not set
}

// never is the time of an alarm that is not needed.
const never = time.Duration(math.MaxInt64)

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

// putLink keeps a link, idle since then, for the next lock, or closes it if maxIdle are kept.
func (k *pool) putLink(l *link, since time.Duration) {
	k.mu.Lock()
	l.idle = since
	full := len(k.idle) >= maxIdle || k.ringBy(l.idle+idleFor) != nil
	if !full {
		k.idle = append(k.idle, l)
	}
	k.mu.Unlock()
	if full {
		_ = l.conn.Close() // no hold uses it
	}
}

// Close closes the idle connections, and the alarm if nothing is held. Holds stay valid, and the
// client can still be used. An unused client does the same by itself after 10 s.
func (c *Client) Close() { c.closeIdle(never) }

// closeIdle closes the links that are idle since that time or longer.
func (k *pool) closeIdle(since time.Duration) {
	k.mu.Lock()
	n := 0
	for n < len(k.idle) && k.idle[n].idle <= since {
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

// add registers a hold that needs the alarm.
func (k *pool) add(h *Hold, at time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.ringBy(at); err != nil {
		k.closeUnusedAlarm()
		return err
	}
	k.holds[h] = at
	return nil
}

// remove forgets a hold that is over.
func (k *pool) remove(h *Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.holds, h)
	k.closeUnusedAlarm()
}

// ringFor sets the alarm for a hold, if it is not over.
func (k *pool) ringFor(h *Hold, at time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.holds[h]; !ok {
		return nil
	}
	k.holds[h] = at
	return k.ringBy(at)
}

// ringBy sets the alarm, unless it rings earlier. It is called with mu held.
func (k *pool) ringBy(at time.Duration) error {
	if k.alarm == nil {
		a, err := clock.Boottime.NewAlarm()
		if err != nil {
			return err
		}
		k.alarm = a
		go k.watch(a)
	}
	at = max(at, 1)
	if k.rings != 0 && k.rings <= at {
		return nil
	}
	if err := k.alarm.Set(at); err != nil {
		return err
	}
	k.rings = at
	return nil
}

// watch waits for the alarm. It does no other IO that could block, so a slow bakeryd cannot delay
// it.
func (k *pool) watch(a clock.Alarm) {
	for a.Wait() == nil && k.onAlarm(a) {
	}
}

// onAlarm closes links that were idle for idleFor and calls the holds that are due. It returns false
// if the alarm is not the client's any more.
func (k *pool) onAlarm(a clock.Alarm) bool {
	now := clock.Boottime.Now()
	k.closeIdle(now - idleFor)
	k.mu.Lock()
	if k.alarm != a {
		k.mu.Unlock()
		return false
	}
	k.rings = 0
	next := never
	var due []*Hold
	for h, at := range k.holds {
		if at <= now {
			due = append(due, h)
			k.holds[h] = never // until it sets the alarm again
		} else {
			next = min(next, at)
		}
	}
	if len(k.idle) > 0 {
		next = min(next, k.idle[0].idle+idleFor)
	}
	if k.ringBy(next) != nil {
		due = slices.Collect(maps.Keys(k.holds)) // they cannot set it either
	}
	k.mu.Unlock()
	for _, h := range due {
		h.onAlarm()
	}
	return true
}
