package main

import "fmt"

// fault is a rule left out of the project's code, which the simulation has to notice.
type fault struct {
	name, what string
	caughtAs   string // the rules of package sim that are broken by it, in the end
	patches    []patch
}

var faults = []fault{
	{"verdict", "a silent host is taken for dead before the verdict is published", "VERDICT", []patch{
		{"daemon/lease/death.go", `			m.publish(layout.Verdict{Host: id, Incarnation: m.hosts[id-1].Incarnation})
`, `			m.hosts[id-1].Gone = true
`},
	}},
	{"judge", "a host is declared dead after half a lease", "EXCLUSION|ORDER|WORD", []patch{
		{"daemon/lease/death.go", `(h.Looked >= h.DeadAt(m.t) || `, `(h.Looked-h.Since >= m.t.Lease/2 || `},
	}},
	{"deadline", "what is granted lasts a lease longer than it may", "DEADLINE|EXCLUSION|WORD", []patch{
		{"daemon/lease/event.go", `	return m.t0 + m.t.Lease
`, `	return m.t0 + 2*m.t.Lease
`},
	}},
	{"t0", "the lease runs from the acknowledgement of its write", "DEADLINE|EXCLUSION|WORD", []patch{
		{"daemon/lease/claim.go", `	m.t0 = m.term0
`, `	m.t0 = m.now
`},
	}},
	{"flight", "a write of a slot that takes long is done again", "WRITER", []patch{
		{"daemon/area.go", `	if err := a.dev.Write(buf, a.space.Geometry.Slot(a.lock, a.host)); err != nil {
`, `	out, own := make(chan error, 1), bytes.Clone(buf)
	go func() {
		aligned := pool.Get(len(own))
		copy(aligned, own)
		out <- a.dev.Write(aligned, a.space.Geometry.Slot(a.lock, a.host))
	}()
	var err error
	select {
	case err = <-out:
	case <-time.After(50 * time.Millisecond):
		err = fmt.Errorf("no answer in time")
	}
	if err != nil {
`},
	}},
	{"highest", "reads of slots cover the hosts up to the own id", "EXCLUSION|TOKEN|ORDER|VERDICT|HISTORY", []patch{
		{"daemon/lease/reach.go", `func (m *Machine) Highest() int { return m.highest }
`, `func (m *Machine) Highest() int { return m.id }
`},
	}},
	{"claim", "the short claim does not measure how long its steps take", "SINGLE|WRITER|EXCLUSION|VERDICT", []patch{
		{"daemon/lease/claim.go", `	return m.now-readAt <= budget || m.mutation == noBudget
`, `	return budget > 0
`},
	}},
	{"unreadable", "a slot that cannot be read is taken for idle", "EXCLUSION|TOKEN|ORDER|VERDICT|HISTORY", []patch{
		{"daemon/area.go", `		a.last = layout.Slot{}
		return bakery.View{}
`, `		a.last = layout.Slot{}
		return bakery.View{Readable: true}
`},
	}},
	{"choosing", "who is choosing is not waited for", "EXCLUSION|TOKEN|ORDER|HISTORY", []patch{
		{"bakery/survey.go", `	s.ahead.add(o.Mode)
	if o.Phase == phaseChoosing {
`, `	if o.Phase == phaseChoosing {
		return
	}
	s.ahead.add(o.Mode)
	if o.Phase == phaseChoosing {
`},
	}},
	{"upgrade", "a ticket goes on serving after it has become exclusive", "TOKEN", []patch{
		{"daemon/mode.go", `	t.closed = true
`, ``},
	}},
}

func faultNamed(name string) (fault, error) {
	for _, f := range faults {
		if f.name == name {
			return f, nil
		}
	}
	return fault{}, fmt.Errorf("no fault %q: -faults lists them", name)
}
