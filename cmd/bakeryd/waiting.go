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
	waitRepeat  = 20 * time.Second // how long bakeryd waits before the reason is logged again; then twice as long
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
	var last, told string      // reasons
	var since, began time.Time // of last, of the wait
	var repeat time.Duration   // after began
	logged := map[string]bool{}
	var over <-chan struct{}
	for {
		select {
		case t := <-r.served:
			r.tell(t.state)
			last, told, over = "", "", t.over
			clear(logged)
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
		why := now.For
		if why != last {
			if last == "" {
				began, repeat = time.Now(), waitRepeat
			}
			last, since = why, time.Now()
			continue
		}
		if why == "" || time.Since(since) < waitSilence-waitPoll {
			continue
		}
		if why != told {
			r.tell("STATUS=" + r.joining + ", waiting for " + why)
			told = why
		}
		switch {
		case !logged[why]:
			r.log.Warn("not serving locks yet, waiting", attributes(now)...)
			logged[why] = true
		case time.Since(began) >= repeat:
			more := []any{"waited", time.Since(began).Round(time.Second), "remedy", cmp.Or(now.Do, "none needed: it ends by itself")}
			r.log.Warn("still not serving locks, waiting", append(attributes(now), more...)...)
			for repeat <= time.Since(began) {
				repeat *= 2
			}
		}
	}
}

func attributes(r waiting.Reason) []any {
	attrs := []any{"reason", r.For}
	if r.Left > 0 {
		attrs = append(attrs, "join_in", r.Left)
	}
	return attrs
}
