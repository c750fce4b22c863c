package main

import (
	"log/slog"
	"time"
)

// The times of a report of what bakeryd waits for.
const (
	waitPoll    = time.Second     // between two looks
	waitSilence = 2 * time.Second // how long the reason stays the same before it is logged
)

// reporter tells the log and systemd what bakeryd waits for before it serves locks.
type reporter struct {
	log     *slog.Logger
	tell    func(state string) // lines as in sd_notify(3)
	waiting func() string      // what is waited for; empty: nothing
	joining string             // STATUS= while it waits
	served  chan term          // from a host that begins to serve
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
	var last, logged string // reasons
	var since time.Time     // of last
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
		why := r.waiting()
		switch {
		case why != last:
			last, since = why, time.Now()
		case why != "" && why != logged && time.Since(since) >= waitSilence-waitPoll:
			r.log.Warn("not serving locks yet, waiting", "reason", why)
			r.tell("STATUS=" + r.joining + ", waiting for " + why)
			logged = why
		}
	}
}
