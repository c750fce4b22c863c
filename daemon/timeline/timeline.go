// Package timeline makes one page of the event journals of several hosts: who
// had which lock when, who waited for whom, who died, and whether two ever had
// one lock at once. It knows what events mean, and nothing of disks, leases or
// terminals; the page needs no network and no other file.
//
// Begin with [Build]. The events become attempts to have a lock and changes of
// hosts (history.go); clock.go finds out how far the hosts' clocks are apart,
// by the order that the tokens show; judge.go looks for what must not be. read.go
// reads journals, page.go writes the page, whose drawing is in page/.
package timeline

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
)

// Source is the journal of one host, or some of it.
type Source struct {
	Name     string // of the file, or what else people know it by
	Host     int    // id of the host that kept it; 0: as its events say
	HostName string // where the events have none
	Events   []events.Event
	Damaged  int // lines that could not be read
}

// Options say what of it is shown.
type Options struct {
	Title string   // of the page; empty: of the hosts
	Note  string   // stands above all: why the page was made, the seed of a simulation
	Locks []string // only these; empty: all

	From, Until time.Time // what has not ended before From and has begun before Until; zero: all

	// OneClock tells that the times of all sources are of one clock, as in a
	// simulation: then nothing is excused by clocks that disagree, and no uptime looked at.
	OneClock bool
}

// ErrNoEvents is returned when there is nothing to show.
var ErrNoEvents = errors.New("no events")

// Write writes the page of the sources. It returns ErrNoEvents or an error of w.
func Write(w io.Writer, sources []Source, o Options) error {
	t, err := Build(sources, o)
	if err != nil {
		return err
	}
	return t.Write(w)
}

// Timeline is what the journals say when they are put together.
type Timeline struct {
	Hosts    []Host
	Locks    []Lock
	Attempts []Attempt // by time
	Findings []Finding // the worst first
	Clocks   []Clock
	Notes    []string // what is missing or was left out

	options Options
	more    int    // findings that are not kept
	from    Moment // of what is shown
	until   Moment
	leased  map[life][]Moment // when each did what takes a lease (judge.go)
}

// Moment is a time in microseconds since 1970, by the clocks as they were put right. Never is none.
type Moment int64

// Never is the moment of what has not come about.
const Never Moment = -1 << 62

// Time is the moment as people have it.
func (m Moment) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Host is one that there are events of.
type Host struct {
	ID      int
	Name    string
	Journal bool // its own journal is there; else only others speak of it
	Changes []Change
}

// Change is what became of a host.
type Change struct {
	At          Moment
	Kind        events.Kind // joined, resumed, lost, left, at_risk, seen, asked, fenced, dead, gap
	By          int         // index of the host who says so; -1: the host itself
	Incarnation uint64
	Reason      string
	Others      int // hosts that say so as well
}

// Lock is one that there are events of.
type Lock struct {
	Name    string
	Permits int
	Marks   []Mark // of nobody's attempt: removed, wanted
}

// Mark is what happened at a moment.
type Mark struct {
	At   Moment
	Kind events.Kind
	Host int // index
	Text string
}

// Build puts journals together. It returns ErrNoEvents.
func Build(sources []Source, o Options) (*Timeline, error) {
	j := gather(sources)
	if len(j.records) == 0 {
		return nil, ErrNoEvents
	}
	c := readClocks(j, o.OneClock)
	c.align(history(j)) // by the order of what it tells
	t := history(j)     // anew, by times that go together
	t.options = o
	t.Clocks, t.Notes = c.report(t), append(j.notes, c.notes...)
	t.judge(c)
	t.crop()
	if len(t.Attempts) == 0 && !slices.ContainsFunc(t.Hosts, func(h Host) bool { return len(h.Changes) > 0 }) {
		return nil, ErrNoEvents
	}
	return t, nil
}

// Violations are the findings that no clock explains.
func (t *Timeline) Violations() (all []Finding) {
	for _, f := range t.Findings {
		if f.Proven {
			all = append(all, f)
		}
	}
	return all
}

// crop leaves what was asked for. Findings are of the whole: they stay if what they are about does.
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

// span is from the first moment to the last.
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
