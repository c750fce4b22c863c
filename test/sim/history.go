package sim

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/history"
)

// histories has the calls of each lock with one permit, for a checker that does not know how locks
// work.
type histories map[string]*history.Recorder

func (r *rules) add(h *hold, c history.Call) {
	if h.subject.permits > 1 {
		return
	}
	recorder := r.histories[h.subject.name]
	if recorder == nil {
		recorder = history.New(1)
		r.histories[h.subject.name] = recorder
	}
	c.Host, c.Token = h.lease.host, h.token
	recorder.Add(c)
}

func (r *rules) granted(h *hold, asked int64) {
	h.said = h.mode
	r.add(h, history.Call{Kind: history.Acquire, Mode: h.mode, Asked: time.Duration(asked), Answered: time.Duration(r.w.now())})
}

// changed records a change of mode: to shared before the request, to exclusive at the grant.
func (r *rules) changed(h *hold, mode layout.Mode) {
	if h.open && mode != h.said {
		now := time.Duration(r.w.now())
		r.add(h, history.Call{Kind: history.Change, Mode: mode, From: h.said, Asked: now, Answered: now})
		h.said = mode
	}
}

// released ends a hold when its holder stops. Beyond its lease the lock was not held.
func (r *rules) released(h *hold) {
	end := min(time.Duration(r.w.now()), h.runsOut().Sub(r.w.trace.began))
	r.add(h, history.Call{Kind: history.Release, Mode: h.said, Asked: end, Answered: end})
}

// history checks the calls of every lock.
func (r *rules) history() {
	if r.wronged {
		r.w.count("an operator was wrong")
		return
	}
	for _, s := range subjects {
		if r.histories[s.name] == nil || r.wentBack[s.name] {
			continue // the checker requires tokens that grow
		}
		h := r.histories[s.name].Rest()
		err := h.Check(time.Minute)
		if err == nil {
			continue
		}
		if r.w.trace.out != nil {
			calls := h.Impossible()
			for _, c := range calls[max(0, len(calls)-10):] {
				fmt.Fprintf(r.w.trace.out, "    call  %v\n", c)
			}
		}
		r.violate("HISTORY", "%s: %v", s.name, err)
	}
}
