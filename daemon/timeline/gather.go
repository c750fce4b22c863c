package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// record is one event of one journal.
type record struct {
	events.Event
	keeper int    // id of the host that recorded it
	raw    Moment // by its clock
	at     Moment // by the corrected clocks
	clock  *clock // which dated it
	node   int    // window of that clock

	attempt *Attempt // that it granted or ended; nil if none
}

// journals holds the records of all sources.
type journals struct {
	records []*record         // by keeper, in the order in which it recorded them; then by clock and time (clock.go)
	of      map[int][]*record // by keeper
	ids     []int             // of keepers, in order
	names   map[int]string    // of hosts that any event mentions; empty: unknown
	notes   []string
}

// Times outside of these bounds are invalid, and would make the others invisible.
var earliest, latest = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// gather determines the keeper of each event, and drops duplicates.
func gather(sources []Source) *journals {
	j := &journals{names: map[int]string{}, of: map[int][]*record{}}
	for _, s := range sources {
		if s.Damaged > 0 {
			j.notes = append(j.notes, fmt.Sprintf("%s: %d lines could not be read and are left out", text.PrintableLine(s.Name), s.Damaged))
		}
		j.add(&s)
	}
	j.ids = slices.Sorted(maps.Keys(j.of))
	for _, id := range j.ids {
		all := j.of[id]
		slices.SortStableFunc(all, func(a, b *record) int { return cmp.Compare(a.Seq, b.Seq) })
		all = slices.CompactFunc(all, func(a, b *record) bool { return a.Seq == b.Seq && a.Kind == b.Kind && a.raw == b.raw })
		j.of[id] = all
		j.records = append(j.records, all...)
	}
	return j
}

func (j *journals) add(s *Source) {
	only, odd := keeperOf(s.Events), 0
	for _, e := range s.Events {
		e.Kind, e.Command, e.Reason = events.Kind(text.PrintableLine(string(e.Kind))), text.PrintableLine(e.Command), text.PrintableLine(e.Reason)
		r := &record{Event: e, keeper: cmp.Or(only, recorder(&e)), raw: Moment(e.At.UnixMicro())}
		r.at = r.raw
		if e.At.Before(earliest) || e.At.After(latest) || r.keeper == 0 {
			odd++
			continue
		}
		j.of[r.keeper] = append(j.of[r.keeper], r)
		j.name(e.Host, e.HostName)
		j.name(e.ByHost, e.ByHostName)
		j.name(r.keeper, "")
	}
	j.name(only, "")
	if odd > 0 {
		j.notes = append(j.notes, fmt.Sprintf("%s: %d events without a host, or of an impossible time, are left out", text.PrintableLine(s.Name), odd))
	}
}

func (j *journals) name(id int, name string) {
	if id != 0 && j.names[id] == "" {
		j.names[id] = text.PrintableLine(name)
	}
}

// keeperOf returns the host that recorded the events, 0 if several did.
func keeperOf(all []events.Event) (id int) {
	for i := range all {
		e := &all[i]
		if e.Host == 0 || e.Lock == "" && e.ByHost != 0 {
			continue // it may be about another host
		}
		if id != 0 && e.Host != id {
			return 0
		}
		id = e.Host
	}
	if id != 0 {
		return id
	}
	for i := range all { // only statements of one host about others
		e := &all[i]
		if k := cmp.Or(e.ByHost, e.Host); e.Kind != events.Dead && k != 0 {
			return k
		}
	}
	return 0
}

// lasted converts milliseconds, within bounds.
func lasted(ms int64) Moment {
	return Moment(min(max(0, ms), latest.Sub(earliest).Milliseconds())) * 1000
}

// recorder returns the host that recorded an event, if the journals of several hosts are mixed. A
// death is recorded by another host as well, which counts here too.
func recorder(e *events.Event) int {
	if e.Lock != "" || e.ByHost == 0 {
		return e.Host
	}
	return e.ByHost
}
