package queue

import "time"

// told is what the clients in a queue were notified of. It changes with every client that comes or
// goes.
type told struct {
	ahead, queued int
	last          uint64    // arrival number of the last one
	far           time.Time // when all were notified
}

const (
	// nearest is the number of clients at the head of the queue that are notified of every change.
	nearest = 16

	// tellFar is the interval at which all other clients are notified.
	tellFar = time.Second
)

// Tell notifies clients in the queue of their places if these have changed, or if a client has
// returned that may not know its place. ahead is the number of hosts before this one. The work does
// not grow with the queue: it notifies new clients and the first nearest immediately, all others
// every tellFar.
func (q *Queue) Tell(ahead int) {
	var near [2 * nearest]place // room for new clients, too
	due, n := q.dueToTell(near[:0], ahead)
	for _, p := range due {
		if c := p.w.Request.Client; c != nil {
			c.KeepPlace(p.w)
		}
		if p.w.Request.OnWaiting != nil {
			p.w.Request.OnWaiting(p.ahead, n)
		}
	}
}

// place is the number of clients ahead of a waiting one.
type place struct {
	w     *Item
	ahead int
}

// dueToTell appends the places of those that Tell must notify now, and returns the number of clients in
// the queue.
func (q *Queue) dueToTell(due []place, ahead int) ([]place, int) {
	again := q.renotify.Swap(false)
	q.mu.Lock()
	defer q.mu.Unlock()
	n, before := len(q.waiting), q.told
	now := told{ahead: ahead + len(q.holds), queued: n, far: before.far}
	if n > 0 {
		now.last = q.waiting[n-1].nth
	}
	if now == before && !again {
		return nil, n
	}
	all := again || time.Since(before.far) >= tellFar
	if all {
		now.far = time.Now()
	} else if n > nearest && !q.tellsAll {
		q.tellsAll = true
		time.AfterFunc(tellFar, q.ClientIsBack)
	}
	if again {
		q.tellsAll = false
	}
	q.told = now
	for i, w := range q.waiting[:min(n, nearest)] {
		due = append(due, place{w, now.ahead + i})
	}
	for i := n - 1; i >= nearest && (all || q.waiting[i].nth > before.last); i-- {
		due = append(due, place{q.waiting[i], now.ahead + i})
	}
	return due, n
}
