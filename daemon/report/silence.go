package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// lost reports whether the host has lost its lease.
func (t *ThisHost) lost() bool { return t.State == StateLost || t.LeaseLeftMS <= 0 }

// The states of a host as seen by its own bakeryd.
const (
	StateJoining = "joining"
	StateLive    = "live"
	StateLeaving = "leaving"
	StateLost    = "lost" // the lease; holders may still have to stop
)

// judgeOwn sets the health of the host that made the report by its lease, whatever its record shows:
// it may be unable to write that, or to read it.
func (r *Report) judgeOwn() {
	if r.ThisHost == nil {
		return
	}
	own := r.HostByID(r.ThisHost.ID)
	switch {
	case own == nil || own.Incarnation != r.ThisHost.Incarnation || own.Health == HealthDead || own.Health == HealthLeft:
	case r.ThisHost.lost():
		own.Health, own.DeadInMS, own.NextFenceMS = HealthLost, nil, nil
	case own.Health == HealthSilent || own.Health == HealthUnknown || own.Health == HealthLost:
		own.Health, own.DeadInMS, own.NextFenceMS = HealthLive, nil, nil
	}
}

// addHostHealth sets the health of the host of every hold.
func (r *Report) addHostHealth() {
	of := map[int]Health{}
	for i := range r.Hosts {
		of[r.Hosts[i].ID] = r.Hosts[i].Health
	}
	for i := range r.Locks {
		for k := range r.Locks[i].Holders {
			h := &r.Locks[i].Holders[k]
			h.HostHealth = of[h.Host]
		}
	}
}

// DescribeSilence sets Silence of every host that is not known to keep its lease: since when, and how
// that ends.
func (r *Report) DescribeSilence() {
	for i := range r.Hosts {
		h := &r.Hosts[i]
		h.Silence, h.outcome, h.Times = "", "", nil
		switch h.Health {
		case HealthSilent:
			r.describeSilent(h)
		case HealthLost:
			h.Silence = "its lease is lost"
			if over := -r.ThisHost.LeaseLeftMS; over > 0 {
				h.Times = []Moving{elapsed("its lease has been over for", over)}
				h.Silence = join(h.Times)
			}
		case HealthUnknown:
			h.Silence = "no renewal seen"
			if h.SilentMS != nil {
				h.Times = []Moving{elapsed("no renewal seen for", *h.SilentMS)}
				h.Silence = join(h.Times)
			}
		}
	}
}

func (r *Report) describeSilent(h *Host) {
	if h.DeadInMS == nil && r.ThisHost != nil {
		h.outcome = "until it is back or evicted"
	} else if h.DeadInMS != nil {
		h.Times = r.outcome(h)
		h.outcome = join(h.Times)
	}
	h.Silence = h.outcome
	if h.SilentMS != nil {
		since := elapsed("no renewal for", *h.SilentMS)
		h.Times = append(h.Times, since)
		h.Silence = strings.TrimSuffix(since.String()+", "+h.outcome, ", ")
	}
}

// outcome returns what happens to a silent host, and when.
func (r *Report) outcome(h *Host) []Moving {
	if r.Lockspace.Policy != layout.PolicyFence {
		return []Moving{left("dead in", *h.DeadInMS, "being declared dead")}
	}
	all := []Moving{left("fenced in", *h.DeadInMS, "being fenced")}
	if h.FailedFences > 0 && h.NextFenceMS != nil {
		failed := "1 attempt has failed"
		if h.FailedFences > 1 {
			failed = fmt.Sprintf("%d attempts have failed", h.FailedFences)
		}
		all = append(all, left(failed+", the next one begins in", *h.NextFenceMS, failed+", the next one begins"))
	}
	return all
}

// Unanswered returns a report of age d as what is known if there is no newer one: a host that was
// live may have lost its lease. It does not change r.
func (r *Report) Unanswered(d time.Duration) *Report {
	old, age := *r, d.Milliseconds()
	old.Hosts, old.Locks = slices.Clone(r.Hosts), slices.Clone(r.Locks)
	for i := range old.Hosts {
		h := &old.Hosts[i]
		if h.SilentMS != nil {
			h.SilentMS = new(*h.SilentMS + age)
		}
		if h.Health == HealthLive || h.Health == HealthSilent {
			h.Health, h.DeadInMS, h.NextFenceMS, h.FailedFences = HealthUnknown, nil, nil, 0
		}
	}
	if r.ThisHost != nil {
		own := *r.ThisHost
		own.State = string(HealthUnknown)
		old.ThisHost = &own
	}
	for i := range old.Locks {
		old.Locks[i].Holders = slices.Clone(r.Locks[i].Holders)
	}
	old.addHostHealth()
	old.DescribeSilence()
	old.explainStuck()
	return &old
}

// Past returns a report of an earlier term, of age d, as what is known while this host is not in the
// lockspace, for the reason why. Its disks are shown as they were then. The locks were read before that,
// at the age read; 0: never. Past does not change r.
func (r *Report) Past(why, hint string, d, read time.Duration) *Report {
	past := r.Unanswered(d)
	own := past.ThisHost
	own.State, own.LeaseLeftMS, own.IO = StateJoining, min(0, own.LeaseLeftMS-d.Milliseconds()), nil
	past.Judge()
	p := Problem{Severity: SeverityError, Kind: ProblemJoining, Subject: "this host", Text: "this host is not in the lockspace", Why: why}
	past.Problems = slices.Insert(past.Problems, 0, p.withAge(read, hint))
	return past
}
