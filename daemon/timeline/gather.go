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
	records []*record              // by keeper, in the order in which it recorded them; then by clock and time (clock.go)
	of      map[identity][]*record // by keeper
	keepers []identity             // in order
	hosts   []identity             // that any event mentions, by id and time (names.go)
	first   map[identity]Moment
	index   map[identity]int // of hosts; without a name: of the first with that id
	shown   []string         // their names, with the id if several have that name
	names   map[life]string  // of hosts, by id and incarnation
	notes   []string
}

// Times outside of these bounds are invalid, and would make the others invisible.
var earliest, latest = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// gather determines the keeper of each event, and drops duplicates.
func gather(sources []Source) *journals {
	j := &journals{first: map[identity]Moment{}, index: map[identity]int{}, names: map[life]string{}, of: map[identity][]*record{}}
	for _, s := range sources {
		if s.Damaged > 0 {
			j.notes = append(j.notes, fmt.Sprintf("%s: %d lines could not be read and are left out", text.PrintableLine(s.Name), s.Damaged))
		}
		j.add(&s)
	}
	j.listHosts()
	for k, all := range j.of {
		if h := j.hosts[j.host(k.id, "", 0)]; k.name == "" && h != k { // events that do not name their keeper
			j.of[h] = append(j.of[h], all...)
			delete(j.of, k)
		}
	}
	j.keepers = slices.SortedFunc(maps.Keys(j.of), identity.compare)
	for _, k := range j.keepers {
		all := j.of[k]
		slices.SortStableFunc(all, func(a, b *record) int { return cmp.Compare(a.Seq, b.Seq) })
		all = slices.CompactFunc(all, func(a, b *record) bool { return a.Seq == b.Seq && a.Kind == b.Kind && a.raw == b.raw })
		j.of[k] = all
		j.records = append(j.records, all...)
	}
	return j
}

func (j *journals) add(s *Source) {
	only, odd := keeperOf(s.Events), 0
	name := lastName(s.Events, only)
	for _, e := range s.Events {
		e.Kind, e.Command, e.Reason = events.Kind(text.PrintableLine(string(e.Kind))), text.PrintableLine(e.Command), text.PrintableLine(e.Reason)
		r := &record{Event: e, keeper: cmp.Or(only, recorder(&e)), raw: Moment(e.At.UnixMicro())}
		r.at = r.raw
		if e.At.Before(earliest) || e.At.After(latest) || r.keeper == 0 {
			odd++
			continue
		}
		k := identity{r.keeper, name}
		if only == 0 {
			k.name = text.PrintableLine(r.keeperName())
		}
		j.of[k] = append(j.of[k], r)
		j.mention(e.Host, e.HostName, e.Incarnation, r.raw)
		j.mention(e.ByHost, e.ByHostName, 0, r.raw)
		j.mention(r.keeper, "", 0, r.raw)
	}
	j.mention(only, "", 0, Never)
	if odd > 0 {
		j.notes = append(j.notes, fmt.Sprintf("%s: %d events without a host, or of an impossible time, are left out", text.PrintableLine(s.Name), odd))
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

// lastName returns the name that the host with an id had last.
func lastName(all []events.Event, id int) string {
	for i := range slices.Backward(all) {
		if r := (&record{Event: all[i], keeper: id}); id != 0 && r.keeperName() != "" {
			return text.PrintableLine(r.keeperName())
		}
	}
	return ""
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
