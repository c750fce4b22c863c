package main

import (
	"fmt"
	"slices"

	"github.com/bakeryd/bakeryd/test/bench/scale"
)

func (r *results) writeScale(p page) {
	p.text("## Scale")
	if !r.measured(p, "scale") {
		return
	}
	p.text("bakeryd's own code runs in memory, so most figures are counts that hold on any machine. Records lie 512 bytes apart; " +
		"on disks of 4096-byte sectors the same requests have eight times as many bytes. One bakeryd runs. **The other hosts are " +
		"only records**: valid, live, and renewed in time, which is all that a host sees of others that want no lock. " +
		"Every lock was used once. Joining, below, shows that real hosts cost the same.")
	g := newGrid(r.scale.Points)
	if len(g.hosts) == 0 {
		return
	}
	g.acquire(p)
	r.writeGrants(p)
	g.heartbeat(p)
	g.memory(p)
	g.status(p)
	r.writeJoining(p)
	r.writeWaiters(p)
}

// grid has the points by hosts and locks.
type grid struct {
	hosts, locks []int
	at           map[[2]int]scale.Point
}

func newGrid(points []scale.Point) grid {
	g := grid{at: map[[2]int]scale.Point{}}
	for _, p := range points {
		g.at[[2]int{p.Hosts, p.Locks}] = p
		g.hosts, g.locks = append(g.hosts, p.Hosts), append(g.locks, p.Locks)
	}
	slices.Sort(g.hosts)
	slices.Sort(g.locks)
	g.hosts, g.locks = slices.Compact(g.hosts), slices.Compact(g.locks)
	return g
}

func (g grid) point(hosts, locks int) scale.Point { return g.at[[2]int{hosts, locks}] }

// most and least return the ends of an axis.
func least(axis []int) int { return axis[0] }
func most(axis []int) int  { return axis[len(axis)-1] }

// table writes one value of every point.
func (g grid) table(p page, cell func(scale.Point) string) {
	head := []string{"hosts"}
	for _, l := range g.locks {
		head = append(head, thousands(float64(l))+plural(l, " lock"))
	}
	rows := [][]string{head}
	for _, h := range g.hosts {
		row := []string{thousands(float64(h))}
		for _, l := range g.locks {
			if at, ok := g.at[[2]int{h, l}]; ok {
				row = append(row, cell(at))
			} else {
				row = append(row, "")
			}
		}
		rows = append(rows, row)
	}
	p.rows(rows)
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// byHost returns the growth with each further host, at a number of locks, from the fewest hosts to
// the most.
func (g grid) byHost(locks int, of func(scale.Point) float64) float64 {
	return slope(least(g.hosts), most(g.hosts), of(g.point(least(g.hosts), locks)), of(g.point(most(g.hosts), locks)))
}

// byLock returns the growth with each further lock.
func (g grid) byLock(hosts int, of func(scale.Point) float64) float64 {
	return slope(least(g.locks), most(g.locks), of(g.point(hosts, least(g.locks))), of(g.point(hosts, most(g.locks))))
}

func slope(x0, x1 int, y0, y1 float64) float64 {
	if x0 == x1 {
		return 0
	}
	return (y1 - y0) / float64(x1-x0)
}

func (g grid) acquire(p page) {
	p.text("### Acquire and release")
	p.text("Requests and bytes of an uncontended acquire and release, and its p50 in process on a disk that takes no time:")
	g.table(p, func(at scale.Point) string {
		return fmt.Sprintf("%s, %s, %s; %.0f µs", count(int(at.Acquire.Reads), "read"), size(at.Acquire.ReadBytes), count(int(at.Acquire.Writes), "write"), at.AcquireUS)
	})
	p.text("Slope: %.0f bytes read and %.2f µs for each further host; %.3f bytes for each further lock.",
		g.byHost(least(g.locks), func(at scale.Point) float64 { return float64(at.Acquire.ReadBytes) }),
		g.byHost(least(g.locks), func(at scale.Point) float64 { return at.AcquireUS }),
		g.byLock(most(g.hosts), func(at scale.Point) float64 { return float64(at.Acquire.ReadBytes) }))
	p.text("![bytes read](scale-bytes.svg)")
}

func (r *results) writeGrants(p page) {
	if len(r.scale.Grants) == 0 {
		return
	}
	p.text("### Local grants")
	p.text("A lock passes between clients of one bakeryd: each requests it, waits, is granted it by the release of the one before, and releases it. " +
		"Clients are sessions without sockets, so this is the cost of bakeryd alone; that of clients which only look includes the lookers themselves. " +
		"They follow the events, and ask for the status page and for the locks once a second.")
	rows := [][]string{{"clients that wait", "other locks held", "hosts", "clients that look", "processor time of a grant", "against the first row", "grant to grant", "lines sent"}}
	base := r.scale.Grants[0].CPUUS
	for _, g := range r.scale.Grants {
		rows = append(rows, []string{thousands(float64(g.Waiters)), thousands(float64(g.Locks)), thousands(float64(g.Hosts)), thousands(float64(g.Lookers)),
			us(g.CPUUS), fmt.Sprintf("%.2f", g.CPUUS/base), us(g.US), fmt.Sprintf("%.2f", g.Lines)})
	}
	p.rows(rows)
}

func (g grid) heartbeat(p page) {
	p.text("### Heartbeat")
	p.text("Requests of one host per L/6 to keep its lease, and to see the leases of the others:")
	g.table(p, func(at scale.Point) string {
		return fmt.Sprintf("%s, %s; %s, %s", count(int(at.Heartbeat.Reads), "read"), size(at.Heartbeat.ReadBytes), count(int(at.Heartbeat.Writes), "write"), size(at.Heartbeat.WriteBytes))
	})
	p.text("Slope: %.0f bytes read for each further host. All hosts together read the square of that.",
		g.byHost(least(g.locks), func(at scale.Point) float64 { return float64(at.Heartbeat.ReadBytes) }))
	p.text("All other requests of an idle host, in a whole lease:")
	g.table(p, func(at scale.Point) string {
		n := at.IdleOther.Reads + at.IdleOther.Writes
		if n == 0 {
			return "nothing"
		}
		return fmt.Sprintf("%s requests, %s", thousands(float64(n)), size(at.IdleOther.ReadBytes+at.IdleOther.WriteBytes))
	})
}

func (g grid) memory(p page) {
	own := func(at scale.Point) float64 { return float64(at.Memory.HeapBytes - at.Memory.BeforeBytes) }
	p.text("### Memory of an idle bakeryd")
	p.text("Heap and stacks in use after a collection, minus those in use before bakeryd started. In brackets: resident memory as the kernel sees it, before that collection, of a program that also measures:")
	g.table(p, func(at scale.Point) string {
		return fmt.Sprintf("%s (%s)", size(int64(own(at))), size(at.Memory.RSSBytes))
	})
	p.text("Slope: %s for each further host; %s for each further lock that was used among %d hosts, %s among %s. Goroutines: %d with %s, %s with %s.",
		size(int64(g.byHost(least(g.locks), own))), size(int64(g.byLock(least(g.hosts), own))), least(g.hosts),
		size(int64(g.byLock(most(g.hosts), own))), thousands(float64(most(g.hosts))),
		g.point(least(g.hosts), least(g.locks)).Goroutines, count(least(g.locks), "lock"),
		thousands(float64(g.point(least(g.hosts), most(g.locks)).Goroutines)), count(most(g.locks), "lock"))
	p.text("![memory](scale-memory.svg)")
}

func count(n int, what string) string { return thousands(float64(n)) + " " + plural(n, what) }

func (g grid) status(p page) {
	p.text("### Time to status")
	p.text("Time on a disk that takes no time, and bytes read:")
	g.table(p, func(at scale.Point) string {
		if at.StatusError != "" {
			return "refused"
		}
		return fmt.Sprintf("%s, %s", duration(at.StatusMS), size(at.StatusBytes))
	})
	var largest scale.Point // that was answered
	for _, h := range g.hosts {
		for _, l := range g.locks {
			at := g.point(h, l)
			if at.StatusMS > 0 && h*l > largest.Hosts*largest.Locks {
				largest = at
			}
			if at.StatusError != "" {
				p.text("With %s and %s: %s.", count(h, "host"), count(l, "lock"), at.StatusError)
			}
		}
	}
	if slots := float64(largest.Hosts) * float64(largest.Locks); slots > 0 {
		p.text("Slope: the slots of all used locks are read, %.0f ns for each slot of %s and %s.", largest.StatusMS*1e6/slots,
			count(largest.Hosts, "host"), count(largest.Locks, "lock"))
	}
	p.text("![time to status](scale-status.svg)")
}

func duration(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

func (r *results) writeJoining(p page) {
	p.text("### Joining")
	p.text("Real hosts, all in one process, at 100 µs a request. A host waits for its claim, and until all live hosts have renewed and so cover it.")
	rows := [][]string{{"hosts", "at once", "lease", "all joined after", "acquire and release then"}}
	for _, j := range r.scale.Joining {
		rows = append(rows, []string{thousands(float64(j.Hosts)), fmt.Sprint(j.AtOnce), fmt.Sprintf("%d s", j.LeaseMS/1000), fmt.Sprintf("%.1f s", j.Seconds),
			fmt.Sprintf("%s, %s, %s", count(int(j.Acquire.Reads), "read"), size(j.Acquire.ReadBytes), count(int(j.Acquire.Writes), "write"))})
	}
	p.rows(rows)
}

func (r *results) writeWaiters(p page) {
	p.text("### Waiters")
	p.text("Requests of real hosts that wait for one lock, which another host holds for some seconds. Each request takes 100 µs and the overhead of a sleep by the kernel. " +
		"Then the lock passes through all of them; each releases it immediately.")
	rows := [][]string{{"waiters", "reads/s", "bytes/s", "reads/s of the first in line", "bytes/s of it", "reads/s of each other one", "release begun to grant, p50"}}
	for _, w := range r.scale.Waiters {
		others := ""
		if w.Waiters > 1 {
			others = fmt.Sprintf("%.1f", (w.Reads-w.FirstReads)/float64(w.Waiters-1))
		}
		rows = append(rows, []string{fmt.Sprint(w.Waiters), thousands(w.Reads), size(int64(w.ReadBytes)), thousands(w.FirstReads), size(int64(w.FirstBytes)), others, us(w.HandOverUS)})
	}
	p.rows(rows)
	p.text("![requests by waiters](scale-waiters.svg)")
}

// size formats a number of bytes with a unit.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB"}
	v := float64(n)
	for len(units) > 1 && (v >= 1024 || v <= -1024) {
		v, units = v/1024, units[1:]
	}
	if v == float64(int64(v)) || units[0] == "B" {
		return fmt.Sprintf("%.0f %s", v, units[0])
	}
	return fmt.Sprintf("%.1f %s", v, units[0])
}
