package sim

import (
	"fmt"

	"github.com/bakeryd/bakeryd/layout"
)

// dump adds the disk's contents to the trace, for the analysis of a violation.
func (w *world) dump() {
	if w.trace.out == nil {
		return
	}
	g, space := w.sb.Geometry, w.sb.Space()
	line := func(format string, args ...any) { fmt.Fprintf(w.trace.out, "    disk  "+format+"\n", args...) }
	for id := 1; id <= g.Hosts; id++ {
		r, err := space.DecodeHost(w.disk.record(g.Host(id)), id)
		switch {
		case err != nil:
			line("host %d: %v", id, err)
		case r.State != layout.StateBlank:
			line("host %d: %v %016x, name %s, sequence %d, highest %d, watchdog %d s, verdicts %v", id, r.State, r.Incarnation, r.Name,
				r.Sequence, r.ReadHorizon, r.WatchdogSeconds, r.Verdicts)
		}
	}
	for lock := 0; lock <= g.Locks; lock++ {
		if lock > 0 {
			e, err := space.DecodeEntry(w.disk.record(g.Entry(lock)), lock)
			if err != nil || !e.Free() {
				line("lock %d: %q, %d permits, creation %d %v", lock, e.Name, e.Permits, e.Creation, err)
			}
		}
		for id := 1; id <= g.Hosts; id++ {
			s, err := space.DecodeSlot(w.disk.record(g.Slot(lock, id)), lock, id)
			if err != nil || s.Incarnation != 0 {
				line("lock %d host %d: %v %v %016x, ticket %d, creation %d %v", lock, id, s.Phase, s.Mode, s.Incarnation, s.Ticket, s.Creation, err)
			}
		}
	}
	for _, m := range w.machines {
		if m.proc == nil {
			continue
		}
		if d, err := m.proc.svc.Joined(); err == nil {
			if r, err := d.Status(); err == nil {
				for _, l := range r.Locks {
					if l.Stuck != "" {
						line("m%d: %s: %s", m.n, l.Name, l.Stuck)
					}
				}
			}
		}
	}
}
