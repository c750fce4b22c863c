package locks

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// Observer receives the reports of what happens to the locks of a host. Locks call it with mutexes held, on the way
// to a grant. Its methods do no IO and wait for none. The directory's lock is not observed, because
// it is bakeryd's own.
type Observer interface {
	// Observe returns a number by which later happenings name a request; 0 if there is none.
	Observe(Happening) uint64
	// Recovered: a host that is over took part in a lock, and does not block this host any more.
	Recovered()
	// Noted reports to an operator what has no place in the journal. attrs are those of package slog.
	Noted(message string, e layout.Entry, attrs ...any)
	// Trouble reports IO that failed and is retried, or a record that is damaged.
	Trouble(message string, e layout.Entry, attrs ...any)
}

// Happening is what happened to a lock or to the request of a client.
type Happening struct {
	Kind    events.Kind
	Entry   layout.Entry // only the name may be known
	Request *Request     // of the client; nil if it is about the lock
	At      time.Time    // zero: now

	Ticket layout.Ticket
	Token  layout.Ticket
	Waited time.Duration
	Held   time.Duration
	// a grant that was handed over from another client of this host, without the disk
	Handoff bool

	Ahead      []events.Peer // in order: the last one is directly ahead
	AheadCount int           // number of all, if Ahead is shortened

	By     events.Peer // the host that did it, if it is another one
	Reason string
}

// observe reports a happening of the lock.
func (lk *Lock) observe(h Happening) {
	if lk.observed() {
		h.Entry = lk.Entry
		lk.mgr.observer.Observe(h)
	}
}
