// Package timeline makes one page of the event journals of several hosts: the holders and waiters
// of each lock, the deaths of hosts, and whether two hosts ever held one lock at the same time.
// It knows the meaning of events, and nothing about disks, leases or terminals. The page needs no
// network and no other file.
//
// Begin with [Build]. gather.go reads the sources, and names.go determines which hosts there are.
// history.go turns events into attempts to take a lock and changes of hosts; find.go finds the
// attempt of an event. spans.go derives the states of hosts, lengths.go ranks waits and holds.
// clock.go determines the differences of the hosts' clocks, by the order that the tokens show.
// judge.go searches for violations. read.go reads journals. page.go writes the page, whose script
// is in page/.
package timeline

import (
	"errors"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Source is the journal of one host, or a part of it.
type Source struct {
	Name    string // of the file, or another name for people
	Events  []events.Event
	Damaged int // number of unreadable lines
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

// Timeline is the combination of the journals. Its JSON is the input of the page's script.
type Timeline struct {
	Title    string     `json:"title"`
	Note     string     `json:"note"`
	From     Moment     `json:"from"` // the shown range
	Until    Moment     `json:"until"`
	Hosts    []*Host    `json:"hosts"`
	Locks    []*Lock    `json:"locks"`
	Attempts []*Attempt `json:"attempts"` // by time
	Findings []*Finding `json:"findings"` // the worst first
	Notes    []string   `json:"notes"`    // about missing or dropped data

	more   int               // number of findings that were not kept
	leased map[life][]Moment // when hosts acted under a lease: drew tickets, granted locks or changed modes
}

// life is one incarnation of a host.
type life struct {
	host int // index
	of   text.Hex
}

// Moment is a time in microseconds since 1970, by the corrected clocks. Never is none.
type Moment int64

// Never is the moment of an event that did not happen. It is no time of an event (gather.go).
const Never Moment = 0

// Time converts a moment.
func (m Moment) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Host is a host with events: an id together with a name, because another host may reuse the id.
type Host struct {
	ID      int       `json:"id"`
	Name    string    `json:"name"`    // differs from the names of the other hosts
	Journal bool      `json:"journal"` // its own journal is there; otherwise only other hosts report about it
	Added   int64     `json:"added"`   // maximum correction of its times, in us; positive: later
	Changes []*Change `json:"changes"`
	Spans   []Span    `json:"spans"` // by time; in between, its state is not known

	own  []Moment // times of the events in its own journal
	life text.Hex // the incarnation in the first of them
}

// Change is a change of a host's state.
type Change struct {
	At          Moment      `json:"at"`
	Kind        events.Kind `json:"kind"` // joined, resumed, lost, left, at_risk, seen, asked, fenced, dead, disk_lost, disk_back, replaced, gap
	By          int         `json:"by"`   // index of the host that reports it; -1: the host itself
	Incarnation text.Hex    `json:"incarnation,omitzero"`
	Reason      string      `json:"reason"`
	Others      int         `json:"others"`       // number of other hosts that also report it
	Old         bool        `json:"old,omitzero"` // a verdict that the reporting host read when it joined: the host died earlier

	before Moment // the event before, in the journal that has it; Never: none
	keeper int    // index of the host whose journal has it
	others []int  // of the other ones
}

// Lock is a lock with events.
type Lock struct {
	Name    string `json:"name"`
	Permits int    `json:"permits"`
	Marks   []Mark `json:"marks"` // without an attempt: removed, wanted

	raw     string     // the name in the events
	holds   []*Attempt // by token
	removed []Moment   // by time
}

// Mark is an event at a moment.
type Mark struct {
	At   Moment      `json:"at"`
	Kind events.Kind `json:"kind"`
	Host int         `json:"host"` // index
	Text string      `json:"text"`
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
	t.Title, t.Note, t.Notes = text.PrintableLine(o.Title), text.PrintableLine(o.Note), j.notes
	t.judge(c)
	t.makeSpans()
	t.crop(o)
	if len(t.Attempts) == 0 && !slices.ContainsFunc(t.Hosts, func(h *Host) bool { return len(h.Changes) > 0 }) {
		return nil, ErrNoEvents
	}
	return t, nil
}

// Violations returns the findings that no clocks explain.
func (t *Timeline) Violations() (all []*Finding) {
	for _, f := range t.Findings {
		if f.Proven() {
			all = append(all, f)
		}
	}
	return all
}

// crop keeps the selected part. Findings are about the whole: they stay if their attempts do.
func (t *Timeline) crop(o Options) {
	if !o.From.IsZero() {
		t.From = Moment(o.From.UnixMicro())
	}
	if !o.Until.IsZero() {
		t.Until = Moment(o.Until.UnixMicro())
	}
	t.Attempts = slices.DeleteFunc(t.Attempts, func(a *Attempt) bool {
		return a.Ended < t.From || a.begin() > t.Until || len(o.Locks) > 0 && !slices.Contains(o.Locks, a.lock.raw)
	})
	at := make(map[*Attempt]int, len(t.Attempts))
	for i, a := range t.Attempts {
		at[a] = i
	}
	t.Findings = slices.DeleteFunc(t.Findings, func(f *Finding) bool {
		for _, a := range f.attempts {
			i, kept := at[a]
			if !kept {
				return true
			}
			f.Attempts = append(f.Attempts, i)
		}
		return false
	})
	outside := func(at Moment) bool { return at < t.From || at > t.Until }
	for _, h := range t.Hosts {
		h.Changes = slices.DeleteFunc(h.Changes, func(c *Change) bool { return outside(c.At) })
		h.Spans = slices.DeleteFunc(h.Spans, func(s Span) bool { return s.Till < t.From || s.From > t.Until })
	}
	for _, l := range t.Locks {
		l.Marks = slices.DeleteFunc(l.Marks, func(m Mark) bool { return outside(m.At) })
	}
}
