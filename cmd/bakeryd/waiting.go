package main

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/bakeryd/bakeryd/daemon/waiting"
)

// The times of a report of what bakeryd waits for.
const (
	waitPoll    = time.Second      // between two looks
	waitSilence = 2 * time.Second  // how long the reason stays the same before it is logged
	waitRepeat  = 20 * time.Second // how long before it is logged again; after that, twice the time before
)

// reporter tells the log and systemd what bakeryd waits for before it serves locks.
type reporter struct {
	log     *slog.Logger
	tell    func(state string)    // lines as in sd_notify(3)
	waiting func() waiting.Reason // what is waited for
	joining string                // STATUS= while it waits
	served  chan term             // from a host that begins to serve
}

// term is the time in which a host serves locks.
type term struct {
	state string          // lines as in sd_notify(3)
	over  <-chan struct{} // closed at its end
}

// run reports until done is closed. No other goroutine sends STATUS= meanwhile, so that "joining" does not follow the
// state of a host that serves.
func (r *reporter) run(done <-chan struct{}) {
	poll := time.NewTicker(waitPoll)
	defer poll.Stop()
	var last, logged string  // reasons
	var since time.Time      // of last
	var repeat time.Duration // after since
	var over <-chan struct{}
	for {
		select {
		case t := <-r.served:
			r.tell(t.state)
			last, logged, over = "", "", t.over
			poll.Stop() // an idle host is woken by no timer
			continue
		case <-over:
			over = nil
			poll.Reset(waitPoll)
			continue
		case <-done:
			return
		case <-poll.C:
		}
		now := r.waiting()
		switch why := now.For; {
		case why != last:
			last, since, repeat = why, time.Now(), waitRepeat
		case why != "" && why != logged && time.Since(since) >= waitSilence-waitPoll:
			r.log.Warn("not serving locks yet, waiting", attributes(now)...)
			r.tell("STATUS=" + r.joining + ", waiting for " + why)
			logged = why
		case why != "" && time.Since(since) >= repeat:
			more := []any{"for", repeat, "remedy", cmp.Or(now.Do, "none needed: it ends by itself")}
			r.log.Warn("still not serving locks, waiting", append(attributes(now), more...)...)
			repeat *= 2
		}
	}
}

func attributes(r waiting.Reason) []any {
	attrs := []any{"reason", r.For}
	if r.Left > 0 {
		attrs = append(attrs, "left", r.Left)
	}
	return attrs
}
