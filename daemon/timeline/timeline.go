// Package timeline makes one page of the event journals of several hosts: the holders and waiters
// of each lock, the deaths of hosts, and whether two hosts ever held one lock at the same time.
// It knows the meaning of events, and nothing about disks, leases or terminals. The page needs no
// network and no other file.
//
// Begin with [Build]. history.go turns events into attempts to take a lock and changes of hosts.
// clock.go determines the differences of the hosts' clocks, by the order that the tokens show.
// judge.go searches for violations. read.go reads journals. page.go writes the page, whose script
// is in page/.
package timeline

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
)

// Source is the journal of one host, or a part of it.
type Source struct {
	Name     string // of the file, or another name for people
	Host     int    // id of the host that recorded it; 0: according to its events
	HostName string // if the events have none
	Events   []events.Event
	Damaged  int // number of unreadable lines
}

// Options select and label the contents of the page.
type Options struct {
	Title string   // of the page; empty: of the hosts
	Note  string   // shown above everything: the reason for the page, the seed of a simulation
	Locks []string // only these; empty: all

	From, Until time.Time // only items that have not ended before From and have begun before Until; zero: all

	// OneClock states that the times of all sources are of one clock, as in a simulation. Then
	// clocks excuse nothing, and uptimes are not used.
	OneClock bool
}

// ErrNoEvents is returned when the sources have no events.
var ErrNoEvents = errors.New("no events")

// Write writes the page of the sources. It returns ErrNoEvents or an error of w.
func Write(w io.Writer, sources []Source, o Options) error {
	t, err := Build(sources, o)
	if err != nil {
		return err
	}
	return t.Write(w)
}

// Timeline is the combination of the journals.
type Timeline struct {
	Hosts    []Host
	Locks    []Lock
	Attempts []Attempt // by time
	Findings []Finding // the worst first
	Clocks   []Clock
	Notes    []string // about missing or dropped data

	options Options
	more    int    // number of findings that were not kept
	from    Moment // beginning of the shown range
	until   Moment
	leased  map[life][]Moment // when each acted under a lease (judge.go)
}

// Moment is a time in microseconds since 1970, by the corrected clocks. Never is none.
type Moment int64

// Never is the moment of an event that did not happen.
const Never Moment = -1 << 62

// Time converts a moment.
func (m Moment) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Host is a host with events.
type Host struct {
	ID      int
	Name    string
	Journal bool // its own journal is there; otherwise only other hosts report about it
	Changes []Change
}

// Change is a change of a host's state.
type Change struct {
	At          Moment
	Kind        events.Kind // joined, resumed, lost, left, at_risk, seen, asked, fenced, dead, gap
	By          int         // index of the host that reports it; -1: the host itself
	Incarnation uint64
	Reason      string
	Others      int // number of other hosts that also report it
}

// Lock is a lock with events.
type Lock struct {
	Name    string
	Permits int
	Marks   []Mark // without an attempt: removed, wanted
}

// Mark is an event at a moment.
type Mark struct {
	At   Moment
	Kind events.Kind
	Host int // index
	Text string
}

// Build combines journals. It returns ErrNoEvents.
func Build(sources []Source, o Options) (*Timeline, error) {
	j := gather(sources)
	if len(j.records) == 0 {
		return nil, ErrNoEvents
	}
	c := readClocks(j, o.OneClock)
	c.align(history(j)) // by the order in it
	t := history(j)     // again, by the corrected times
	t.options = o
	t.Clocks, t.Notes = c.report(t), append(j.notes, c.notes...)
	t.judge(c)
	t.crop()
	if len(t.Attempts) == 0 && !slices.ContainsFunc(t.Hosts, func(h Host) bool { return len(h.Changes) > 0 }) {
		return nil, ErrNoEvents
	}
	return t, nil
}

// Violations returns the findings that no clocks explain.
func (t *Timeline) Violations() (all []Finding) {
	for _, f := range t.Findings {
		if f.Proven {
			all = append(all, f)
		}
	}
	return all
}

// crop keeps the selected part. Findings are about the whole: they stay if their attempts do.
func (t *Timeline) crop() {
	o := &t.options
	from, until := t.span()
	if !o.From.IsZero() {
		from = Moment(o.From.UnixMicro())
	}
	if !o.Until.IsZero() {
		until = Moment(o.Until.UnixMicro())
	}
	keep := make([]int, len(t.Attempts))
	n := 0
	for i := range t.Attempts {
		a := &t.Attempts[i]
		keep[i] = -1
		if a.Ended < from || a.begin() > until || len(o.Locks) > 0 && !slices.Contains(o.Locks, t.Locks[a.Lock].Name) {
			continue
		}
		keep[i] = n
		t.Attempts[n] = t.Attempts[i]
		n++
	}
	t.Attempts = t.Attempts[:n]
	t.Findings = slices.DeleteFunc(t.Findings, func(f Finding) bool {
		return slices.ContainsFunc(f.Attempts, func(i int) bool { return keep[i] < 0 })
	})
	for i := range t.Findings {
		for k, at := range t.Findings[i].Attempts {
			t.Findings[i].Attempts[k] = keep[at]
		}
	}
	outside := func(at Moment) bool { return at < from || at > until }
	for i := range t.Hosts {
		t.Hosts[i].Changes = slices.DeleteFunc(t.Hosts[i].Changes, func(c Change) bool { return outside(c.At) })
	}
	for i := range t.Locks {
		t.Locks[i].Marks = slices.DeleteFunc(t.Locks[i].Marks, func(m Mark) bool { return outside(m.At) })
	}
	t.from, t.until = from, until
}

// span returns the first and the last moment.
func (t *Timeline) span() (from, until Moment) {
	from, until = -Never, Never
	see := func(at Moment) {
		if at != Never {
			from, until = min(from, at), max(until, at)
		}
	}
	for i := range t.Attempts {
		see(t.Attempts[i].begin())
		see(t.Attempts[i].Ended)
	}
	for i := range t.Hosts {
		for _, c := range t.Hosts[i].Changes {
			see(c.At)
		}
	}
	for i := range t.Locks {
		for _, m := range t.Locks[i].Marks {
			see(m.At)
		}
	}
	return from, until
}

func byTime(a, b Attempt) int {
	return cmp.Or(cmp.Compare(a.begin(), b.begin()), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Token, b.Token))
}
