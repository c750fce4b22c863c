package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/daemon/text"
)

// identity is a host as the journals name it. A host with another name has reused the id.
type identity struct {
	id   int
	name string // empty: unknown
}

func (h identity) compare(other identity) int {
	return cmp.Or(cmp.Compare(h.id, other.id), cmp.Compare(h.name, other.name))
}

// mention adds a host that an event names at a moment.
func (j *journals) mention(id int, name string, incarnation text.Hex, at Moment) {
	if id == 0 {
		return
	}
	h := identity{id, text.PrintableLine(name)}
	if first, ok := j.first[h]; !ok || at < first {
		j.first[h] = at
	}
	if name != "" && incarnation != 0 {
		j.names[life{id, incarnation}] = h.name
	}
}

// listHosts lists the hosts. An id without a name is a host of its own if no event names it.
func (j *journals) listHosts() {
	named := map[int]bool{}
	for h := range j.first {
		named[h.id] = named[h.id] || h.name != ""
	}
	for h := range j.first {
		if h.name != "" || !named[h.id] {
			j.hosts = append(j.hosts, h)
		}
	}
	slices.SortFunc(j.hosts, func(a, b identity) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(j.first[a], j.first[b]), a.compare(b))
	})
	alike := map[string]int{}
	for i, h := range j.hosts {
		j.index[h] = i
		if _, ok := j.index[identity{id: h.id}]; !ok {
			j.index[identity{id: h.id}] = i
		}
		j.shown = append(j.shown, cmp.Or(h.name, fmt.Sprintf("host %d", h.id)))
		alike[j.shown[i]]++
	}
	for i, h := range j.hosts {
		if alike[j.shown[i]] > 1 || strings.HasPrefix(h.name, "host ") {
			j.shown[i] = text.HostName(h.id, h.name)
		}
	}
}

// host returns the index of a host: by its name, by that of its incarnation, or the first with its
// id.
func (j *journals) host(id int, name string, incarnation text.Hex) int {
	name = cmp.Or(text.PrintableLine(name), j.names[life{id, incarnation}])
	if i, ok := j.index[identity{id, name}]; ok {
		return i
	}
	return j.index[identity{id: id}]
}

// keeperName returns the name of the host that recorded an event, empty if the event does not name
// it.
func (r *record) keeperName() string {
	switch r.keeper {
	case r.ByHost:
		return r.ByHostName
	case r.Host:
		return r.HostName
	}
	return ""
}

// keeperOf returns the index of the host that recorded an event.
func (j *journals) keeperOf(r *record) int {
	return j.host(r.keeper, r.keeperName(), 0)
}
