package daemon

import (
	"log/slog"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
)

// recorder is the Observer of a host. It writes events into the journal, counts, and logs.
type recorder struct {
	journal *events.Log // nil if none
	tally   *tally.Tally
	log     *slog.Logger
}

func (r *recorder) Observe(h locks.Happening) uint64 {
	r.count(&h)
	// a queue without anybody ahead is no event
	if h.Kind == events.Waiting && len(h.Ahead) == 0 {
		return 0
	}
	h.WaitedMS, h.HeldMS = h.Waited.Milliseconds(), h.Held.Milliseconds()
	return r.journal.Add(h.Event)
}

// count counts grants and releases, by lock if there is room for its name.
func (r *recorder) count(h *locks.Happening) {
	switch h.Kind {
	case events.Waiting:
		r.tally.Locks.Of(h.Lock, h.At)
	case events.Enter:
		r.tally.Waits.Add(h.Waited)
		c := r.tally.Locks.Of(h.Lock, h.At)
		c.Grants.Add(1)
		c.Waited.Add(int64(h.Waited))
		if h.Handoff {
			r.tally.Handoffs.Add(1)
			c.Handoffs.Add(1)
		}
	case events.Exit:
		r.tally.Holds.Add(h.Held)
		r.tally.Locks.Of(h.Lock, h.At).Held.Add(int64(h.Held))
	}
}

func (r *recorder) Recovered() { r.tally.Recoveries.Add(1) }

func (r *recorder) Noted(message string, e layout.Entry, attrs ...any) {
	r.log.Info(message, append(ofLock(e), attrs...)...)
}

func (r *recorder) Trouble(message string, e layout.Entry, attrs ...any) {
	r.log.Warn(message, append(ofLock(e), attrs...)...)
}

// ofLock returns the attributes that name a lock; none for the directory.
func ofLock(e layout.Entry) []any {
	if e.Name == "" && e.Lock == 0 {
		return nil
	}
	return []any{"lock", e.Name, "number", e.Lock}
}
