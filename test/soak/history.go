package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/history"
)

// Package history checks the clients' logs against each other, without the store and its judge.

// window is the least number of calls checked at a time.
const window = 200

// still reports whether all processes of a host were paused in an interval.
type still func(host int, from, to time.Duration) bool

// kept is a section, as its parts in the log, each with one mode.
type kept []entry

// sections groups the parts by section, and these by lock.
func sections(parts []entry) map[string][]kept {
	of, order := map[string]kept{}, []string(nil)
	for _, e := range parts {
		if of[e.Section] == nil {
			order = append(order, e.Section)
		}
		of[e.Section] = append(of[e.Section], e)
	}
	by := map[string][]kept{}
	for _, name := range order {
		k := of[name]
		by[k[0].Lock] = append(by[k[0].Lock], k)
	}
	return by
}

func (k kept) last() entry { return k[len(k)-1] }

// ended reports whether the holder logged its end within its lease.
func (k kept) ended(still still) bool {
	e := k.last()
	if e.How != endWell && e.How != endStopped {
		return false
	}
	if e.Deadline != 0 {
		return e.End <= e.Deadline
	}
	return !still(e.Host, e.Asked, e.End)
}

// callsOf returns the calls of one lock's sections, in the order of their answers. A holder with an
// unknown end held the lock at the moment of the grant. If the store accepted it, it also held the
// lock when it learned of the grant.
func callsOf(l lock, sections []kept, still still) (calls []history.Call) {
	for _, k := range sections {
		for i, e := range k {
			c := history.Call{Kind: history.Acquire, Host: e.Host, Mode: e.Mode, Token: e.Token, Asked: e.Asked, Answered: e.Since}
			if i > 0 {
				c.Kind, c.From = history.Change, k[i-1].Mode
			}
			calls = append(calls, c)
		}
	}
	grants := slices.Clone(calls)
	slices.SortFunc(grants, func(a, b history.Call) int { return cmp.Compare(a.Answered, b.Answered) })
	for _, k := range sections {
		e := k.last()
		c := history.Call{Kind: history.Release, Host: e.Host, Mode: e.Mode, Token: e.Token, Asked: e.End, Answered: e.End}
		if !k.ended(still) {
			c.Asked, c.Answered = e.Asked, next(l, grants, e)
			if e.Entered {
				c.Asked = e.Since
			}
		}
		calls = append(calls, c)
	}
	slices.SortStableFunc(calls, func(a, b history.Call) int { return cmp.Compare(a.Answered, b.Answered) })
	return calls
}

// next returns the time of the first later grant that conflicts with a part, or [history.Unknown].
func next(l lock, grants []history.Call, e entry) time.Duration {
	i, _ := slices.BinarySearchFunc(grants, e.Since+1, func(c history.Call, at time.Duration) int { return cmp.Compare(c.Answered, at) })
	for _, c := range grants[i:] {
		together := c.Mode == layout.Shared && e.Mode == layout.Shared ||
			l.permits > 1 && c.Mode == layout.Exclusive && e.Mode == layout.Exclusive && c.Host != e.Host
		if !together {
			return c.Answered
		}
	}
	return history.Unknown
}

// checkSectionLogs checks the logs of each lock, window by window. draw makes a page of a
// violation.
func checkSectionLogs(parts []entry, still still, draw func(*history.History) string) (r porcupineReport, found []string) {
	for name, of := range sections(parts) {
		l := lockNamed(name)
		recorder := history.New(l.permits)
		check := func(h *history.History) {
			if h == nil || len(h.Calls) == 0 {
				return
			}
			r.Windows++
			r.Operations += len(h.Calls)
			switch err := h.Check(10 * time.Second); {
			case errors.Is(err, history.ErrUndecided):
				r.Undecided++
			case err != nil:
				found = append(found, fmt.Sprintf("two have had %q at once, or a token went back, according to the clients' logs: %v: see %s", name, err, draw(h)))
			}
		}
		for _, c := range callsOf(l, of, still) {
			recorder.Add(c)
			check(recorder.Window(window))
		}
		check(recorder.Rest())
	}
	return r, found
}

// drawHistory writes a page of a history into the run's directory.
func (s *soak) drawHistory(h *history.History) string {
	page := filepath.Join(s.dir, "porcupine.html")
	if err := h.Draw(page); err != nil {
		return err.Error()
	}
	return page
}
