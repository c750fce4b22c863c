// Package observe is how the packages of a host report what happens: the locks and the sessions know
// an [Observer], and [Recorder] makes events, counts and log lines of that.
package observe

import (
	"log/slog"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
)

// Observer decides what becomes of what happens to the locks of a host. It is called on the way to a
// grant and waits for no IO. The directory's lock is not observed, because it is bakeryd's own.
type Observer interface {
	// Observe returns a number by which later happenings name a request; 0 if there is none. It is
	// called with mutexes held, so that the order of happenings is that of the changes.
	Observe(Happening) uint64
	// Waits: a client waits for a lock.
	Waits(lock string, at time.Time)
	// Granted: a client has waited and has the lock now. handoff: it got it from another client of
	// this host, without the disk.
	Granted(lock string, at time.Time, waited time.Duration, handoff bool)
	// Released: a client has released a lock.
	Released(lock string, at time.Time, held time.Duration)
	// Recovered: a host that is over took part in a lock, and does not block this host any more.
	Recovered()
	// Noted reports to an operator what has no place in the journal. attrs are those of package slog.
	Noted(message string, e layout.Entry, attrs ...any)
	// Trouble reports IO that failed and is retried, or a record that is damaged.
	Trouble(message string, e layout.Entry, attrs ...any)
}

// Happening is an event.
type Happening struct {
	events.Event
	Waited, Held time.Duration // in place of WaitedMS and HeldMS
}

// Recorder is the Observer of a host. It writes events into the journal, counts, and logs.
type Recorder struct {
	Journal *events.Log // nil if none
	Tally   *tally.Tally
	Log     *slog.Logger
}

func (r *Recorder) Observe(h Happening) uint64 {
	// a queue without anybody ahead is no event
	if h.Kind == events.Waiting && len(h.Ahead) == 0 {
		return 0
	}
	h.WaitedMS, h.HeldMS = h.Waited.Milliseconds(), h.Held.Milliseconds()
	return r.Journal.Add(h.Event)
}

// Waits counts the lock, and so do Granted and Released, if there is room for its name.
func (r *Recorder) Waits(lock string, at time.Time) { r.Tally.Locks.Of(lock, at) }

func (r *Recorder) Granted(lock string, at time.Time, waited time.Duration, handoff bool) {
	r.Tally.Waits.Add(waited)
	c := r.Tally.Locks.Of(lock, at)
	c.Grants.Add(1)
	c.Waited.Add(int64(waited))
	if handoff {
		r.Tally.Handoffs.Add(1)
		c.Handoffs.Add(1)
	}
}

func (r *Recorder) Released(lock string, at time.Time, held time.Duration) {
	r.Tally.Holds.Add(held)
	r.Tally.Locks.Of(lock, at).Held.Add(int64(held))
}

func (r *Recorder) Recovered() { r.Tally.Recoveries.Add(1) }

func (r *Recorder) Noted(message string, e layout.Entry, attrs ...any) {
	r.Log.Info(message, append(ofLock(e), attrs...)...)
}

func (r *Recorder) Trouble(message string, e layout.Entry, attrs ...any) {
	r.Log.Warn(message, append(ofLock(e), attrs...)...)
}

// ofLock returns the attributes that name a lock; none for the directory.
func ofLock(e layout.Entry) []any {
	if e.Name == "" && e.Lock == 0 {
		return nil
	}
	return []any{"lock", e.Name, "lock_number", e.Lock}
}
