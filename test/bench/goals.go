package main

import "fmt"

// goal is a goal of the project, and the measured value.
type goal struct {
	what     string
	goal     string
	measured string // empty if not measured
	reached  bool
}

// goals returns the project's goals in its order.
func (r *results) goals() (all []*goal) {
	var measured benchReport
	if r.bench != nil {
		measured = *r.bench
	}
	add := func(what, want string) *goal {
		g := &goal{what: what, goal: want}
		all = append(all, g)
		return g
	}
	g := add("what bakeryd adds to the three raw requests of an uncontended acquire + release, against the toy's two round trips", "at most 1.25 x")
	if u := measured.Uncontended; u != nil {
		g.set(u.AddedRatio <= 1.25, "%.2f x: %s on top of %s; the toy %s", u.AddedRatio, us(u.AddedUS), us(u.FloorP50US), us(u.ToyP50US))
	}
	g = add("the same in process, without a socket, against its three raw requests", "at most 1.05 x")
	if i := measured.InProcess; i != nil {
		g.set(i.Ratio <= 1.05, "%.2f x", i.Ratio)
	}
	for _, rival := range []struct {
		name, what string
		least      float64
	}{{"sanlock", "against sanlock on the same disk", 15}, {"etcd", "against etcd, one node, same disk", 3}} {
		g = add(rival.what, fmt.Sprintf("at least %.0f x faster", rival.least))
		if r.rivals == nil {
			continue
		}
		switch s := of(r.rivals.Series, rival.name); {
		case s == nil:
		case s.Ratio < 1:
			g.set(false, "%.1f x slower", 1/s.Ratio)
		default:
			g.set(s.Ratio >= rival.least, "%.1f x faster", s.Ratio)
		}
	}
	g = add("hand-over between two hosts, release begun to grant, against 1 write + 2 reads", "at most 1.4 x")
	if h := measured.HandOver; h != nil {
		g.set(h.Ratio <= 1.4, "%.2f x", h.Ratio)
	}
	g = add("local hand-off between 8 clients, against the toy", "at least 0.6 x (and, as a guide, 10,000 a second)")
	if h := measured.HandOff; h != nil {
		g.set(h.Ratio >= .6, "%.2f x: %s a second", h.Ratio, thousands(h.PerSecond))
	}
	g = add("re-acquire by the same client, which no other one disturbs, against the toy's two round trips", "at most 1.5 x")
	if a := measured.Reacquire; a != nil {
		g.set(a.Ratio <= 1.5, "%.2f x: %s; %.0f %% of the grants without IO", a.Ratio, us(a.P50US), 100*a.WithoutIO/max(1, a.Count))
	}
	g = add("`bakeryctl lock NAME -- true` against `flock FILE true`", "at most 3 ms more")
	if flock, lock := of(r.wrapper, "flock"), of(r.wrapper, "bakeryctl lock"); flock != nil && lock != nil {
		over := (lock.P50US - flock.P50US) / 1e3
		g.set(over <= 3, "%.1f ms more", over)
	}
	g = add("start of `bakeryctl lock`, until its request arrives, against an empty Go program", "at most 1.5 x")
	if s := of(r.wrapper, "start"); s != nil {
		g.set(s.Ratio <= 1.5, "%.2f x", s.Ratio)
	}
	g = add("lockspace formatted for 2,000 hosts with 3 joined, against one formatted for 3", "at most 1.05 x")
	if s := of(r.formatted, "formatted for 2,000"); s != nil {
		g.set(s.Ratio <= 1.05, "%.2f x", s.Ratio)
	}
	memory, cpu := add("idle bakeryd, resident", idleMemory), add("idle bakeryd, of a core", idleCPU)
	if i := r.idle; i != nil {
		memory.set(i.RSSBytes <= 16<<20, "%.1f MiB", float64(i.RSSBytes)/(1<<20))
		cpu.set(i.CPUSeconds/i.Seconds <= .001, "%.3f %%", 100*i.CPUSeconds/i.Seconds)
	}
	return all
}

// Goals that the table of an idle bakeryd repeats.
const (
	idleMemory = "at most 16 MiB"
	idleCPU    = "at most 0.1 %"
)

func (g *goal) set(reached bool, format string, args ...any) {
	g.measured, g.reached = fmt.Sprintf(format, args...), reached
}

// thousands formats a number with separators.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
