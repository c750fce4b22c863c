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
func (r *results) goals() []goal {
	all := []goal{
		{what: "uncontended acquire + release through bakeryd, against its three raw requests", goal: "at most 1.25 x"},
		{what: "the same through the `bakery` driver in process", goal: "at most 1.05 x"},
		{what: "against sanlock on the same disk", goal: "at least 10 x faster"},
		{what: "against etcd, one node, same disk", goal: "faster"},
		{what: "hand-over between two hosts, release begun to grant, against 1 write + 2 reads", goal: "at most 1.5 x"},
		{what: "local hand-off, no other host waiting", goal: "over 20,000 a second"},
		{what: "`bakeryctl lock NAME -- true` against `flock FILE true`", goal: "at most 3 ms more"},
		{what: "lockspace formatted for 2,000 hosts with 3 joined, against one formatted for 3", goal: "at most 1.05 x"},
		{what: "idle bakeryd, resident", goal: "under 20 MiB"},
		{what: "idle bakeryd, of a core", goal: "under 0.1 %"},
	}
	set := func(i int, reached bool, format string, args ...any) {
		all[i].measured, all[i].reached = fmt.Sprintf(format, args...), reached
	}
	if b := r.bench; b != nil {
		for _, g := range []struct {
			of   *ratioed
			most float64
			at   int
		}{{b.Uncontended, 1.25, 0}, {b.InProcess, 1.05, 1}, {b.HandOver, 1.5, 4}} {
			if g.of != nil {
				set(g.at, g.of.Ratio <= g.most, "%.2f x", g.of.Ratio)
			}
		}
		if b.HandOff != nil && b.HandOff.PerSecond > 0 {
			set(5, b.HandOff.PerSecond > 20000, "%s a second", thousands(b.HandOff.PerSecond))
		}
	}
	if r.rivals != nil {
		if s := of(r.rivals.Series, "sanlock"); s != nil {
			set(2, s.Ratio >= 10, "%.1f x faster", s.Ratio)
		}
		if s := of(r.rivals.Series, "etcd"); s != nil {
			set(3, s.Ratio > 1, "%.1f x faster", s.Ratio)
			if s.Ratio < 1 {
				set(3, false, "%.1f x slower", 1/s.Ratio)
			}
		}
	}
	if flock, lock := of(r.wrapper, "flock"), of(r.wrapper, "bakeryctl lock"); flock != nil && lock != nil {
		over := (lock.P50US - flock.P50US) / 1e3
		set(6, over <= 3, "%.1f ms more", over)
	}
	if s := of(r.formatted, "formatted for 2,000"); s != nil {
		set(7, s.Ratio <= 1.05, "%.2f x", s.Ratio)
	}
	if i := r.idle; i != nil {
		set(8, i.RSSBytes < 20<<20, "%.1f MiB", float64(i.RSSBytes)/(1<<20))
		set(9, i.CPUSeconds/i.Seconds < .001, "%.3f %%", 100*i.CPUSeconds/i.Seconds)
	}
	return all
}

// thousands formats a number with separators.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
