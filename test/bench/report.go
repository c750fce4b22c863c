package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// page writes Markdown.
type page struct{ w io.Writer }

func (p page) text(format string, args ...any) { fmt.Fprintf(p.w, format+"\n\n", args...) }

// rows writes a table; the first row is the header.
func (p page) rows(rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(p.w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(p.w, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	fmt.Fprintln(p.w)
}

// write writes the whole report.
func (r *results) write(w io.Writer) {
	p := page{w}
	p.text("# As fast as the disk")
	p.text("[test/bench/run](run) wrote this report, and repeats all measurements. All ratios are of one run, in which the " +
		"compared programs take turns; absolute times are those of the machine and the disk below.")
	var tried []string
	for _, part := range parts {
		if r.files[part.name].Quick {
			tried = append(tried, part.name)
		}
	}
	if len(tried) > 0 {
		p.text("**Trial runs, whose figures mean nothing: %s.**", strings.Join(tried, ", "))
	}
	r.writeGoals(p)
	r.writeMachine(p)
	r.writeBench(p)
	r.writeRivals(p)
	r.writeWrapper(p)
	r.writeFormatted(p)
	r.writeIdle(p)
	r.writeScale(p)
	p.text("## Run it again")
	p.text("```sh\ntest/bench/run                                # everything, as root on Debian\n" +
		"test/bench/run --keep DIR --only rivals,idle  # two parts; the rest of the report from what DIR has\n```")
	p.text("The parts are %s. BAKERY_TEST_DIR selects another disk than that of /var/tmp.", partNames())
}

// measured reports whether a part was measured; if not, it writes why.
func (r *results) measured(p page, part string) bool {
	k, ok := r.files[part]
	switch {
	case !ok:
		p.text("Not measured.")
	case k.Skipped != "":
		p.text("Not measured: %s.", k.Skipped)
	default:
		p.text("Measured on %s.", k.At.Format("2006-01-02, 15:04 UTC"))
		return true
	}
	return false
}

func (r *results) writeGoals(p page) {
	p.text("## Goals")
	rows := [][]string{{"what", "goal", "measured", "reached"}}
	for _, g := range r.goals() {
		reached := "no"
		if g.reached {
			reached = "yes"
		}
		if g.measured == "" {
			reached = "not measured"
		}
		rows = append(rows, []string{g.what, g.goal, g.measured, reached})
	}
	p.rows(rows)
}

func (r *results) writeMachine(p page) {
	p.text("## Machine and versions")
	if !r.measured(p, "machine") {
		return
	}
	m := r.machine
	cpu := fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)
	if m.Virtual {
		cpu += ", a virtual machine"
	}
	rows := [][]string{{"", ""}, {"CPU", cpu}, {"memory", m.Memory}, {"kernel", m.Kernel}, {"file system", m.Storage}}
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		rows = append(rows, []string{name, m.Versions[name]})
	}
	p.rows(rows)
}

func us(v float64) string { return thousands(v) + " µs" }

func (r *results) writeBench(p page) {
	p.text("## bakeryctl bench")
	if !r.measured(p, "bench") {
		return
	}
	b := r.bench
	p.text("Three hosts of a lockspace formatted for 16, on a file of that disk. Each row takes turns with its own floor, the same raw " +
		"requests on the same device. The toy is a plain socket server in a process of its own: a goroutine for each connection, a queue " +
		"in memory, two round trips for lock and unlock, and nothing else. It shows what the wake-ups of this machine cost, and takes turns with the rows through bakeryd.")
	rows := [][]string{{"", "p50", "p90", "p99", "p99.9", "max", "turns", "floor, p50", "ratio"}}
	add := func(name string, d distribution, more ...string) {
		row := []string{name, us(d.P50US), us(d.P90US), us(d.P99US), us(d.P999US), us(d.MaxUS), thousands(d.Count), "", ""}
		copy(row[7:], more)
		rows = append(rows, row)
	}
	addRatio := func(name string, of *ratioed) {
		if of != nil {
			add(name, of.distribution, us(of.FloorP50US), fmt.Sprintf("%.2f", of.Ratio))
		}
	}
	if b.Floor != nil {
		add("the floor: write, read, write", *b.Floor)
	}
	if b.Toy != nil && b.Toy.Count > 0 {
		add("the toy: two round trips", *b.Toy)
	}
	addRatio("uncontended, through bakeryd", b.Uncontended)
	addRatio("uncontended, in process", b.InProcess)
	if b.Reacquire != nil {
		add("re-acquire by the same client, through bakeryd", b.Reacquire.distribution)
	}
	addRatio("hand-over between two hosts", b.HandOver)
	p.rows(rows)
	if u := b.Uncontended; u != nil {
		p.text("In the median turn bakeryd adds %s to the floor: %.2f times the %s of the toy.", us(u.AddedUS), u.AddedRatio, us(u.ToyP50US))
	}
	if a := b.Reacquire; a != nil {
		p.text("The same client re-acquires in %.2f times the %s of the toy. %s of its %s grants were no request to the disk.",
			a.Ratio, us(a.ToyP50US), thousands(a.WithoutIO), thousands(a.Count))
	}
	r.writeHandOff(p)
	for _, o := range b.Skipped {
		p.text("Skipped: %s: %s.", o.Name, strings.TrimSuffix(o.Reason, "."))
	}
}

func (r *results) writeHandOff(p page) {
	h := r.bench.HandOff
	if h == nil {
		return
	}
	p.text("Local hand-off: clients of one process contend for one lock, through the socket; no other host wants it. A client waits from its request to the grant.")
	rows := [][]string{{"clients", "hand-offs a second", "by the toy", "ratio", "wait, p50", "p99", "p99.9", "the toy's wait, p50", "p99", "p99.9"}}
	for _, c := range h.ByClients {
		rows = append(rows, []string{thousands(c.Clients), thousands(c.PerSecond), thousands(c.ToyPerSecond), fmt.Sprintf("%.2f", c.Ratio),
			us(c.Wait.P50US), us(c.Wait.P99US), us(c.Wait.P999US), us(c.ToyWait.P50US), us(c.ToyWait.P99US), us(c.ToyWait.P999US)})
	}
	p.rows(rows)
	if h.InProcessPerSecond > 0 {
		p.text("%.0f clients in the process of a host, without a socket: %s a second.", h.Clients, thousands(h.InProcessPerSecond))
	}
}

func (r *results) writeRivals(p page) {
	p.text("## Lock and unlock, side by side")
	if !r.measured(p, "rivals") {
		return
	}
	first := r.rivals.Series[0]
	p.text("A compiled client with a connection of its own locks and unlocks repeatedly, without contention. In each of %d rounds "+
		"every program has a turn. A figure is the median of the rounds; p99.9 is that of all turns.", first.Rounds)
	names := map[string]string{
		"bakeryd": "bakeryd, three hosts joined, Go client", "floor": "the three raw requests, nothing in between",
		"etcd": "etcd, one node, Go client, mutex", "sanlock": "sanlock, libsanlock",
	}
	rows := [][]string{{"", "lock + unlock, p50", "p99", "p99.9", "lock, p50", "unlock, p50", "turns", "against bakeryd"}}
	for _, s := range r.rivals.Series {
		rows = append(rows, []string{cmp.Or(names[s.Name], s.Name), us(s.P50US), us(s.P99US), us(s.P999US), us(s.LockUS), us(s.FreeUS), thousands(float64(s.Count)), fmt.Sprintf("%.2f x", s.Ratio)})
	}
	p.rows(rows)
	p.text("bakeryd's unlock returns when the disk shows it. A turn lasts until the next one begins. A turn for which bakeryd " +
		"still held the lock, and passed it on without the disk, would not count.")
	if s := r.rivals.Sanlock; s != nil {
		p.text("sanlock took %.1f s to join its lockspace (`add_lockspace`). It ran with `-w 0 -h 0 -l 0`: without watchdog, real-time priority and locked memory.", s.JoinSeconds)
		if s.Refused != "" {
			p.text("As root without CAP_SYS_RESOURCE it does not run even then, because it requires unlimited locked memory:")
			p.text("```\n%s\n```", s.Refused)
			p.text("The measurement used the same program with a preloaded setrlimit(2) that does not change limits ([nolimit.c](sanlock/nolimit.c)); it locks no memory either way.")
		}
	}
	for _, o := range r.rivals.Left {
		p.text("Skipped: %s: %s.", o.Name, strings.TrimSuffix(o.Reason, "."))
	}
}

func (r *results) writeWrapper(p page) {
	p.text("## Commands")
	if !r.measured(p, "wrapper") {
		return
	}
	p.text("Whole processes, from start to end, in %d rounds of turns. p50 and p99 are medians of the rounds; p99.9 is that of all runs.", r.wrapper[0].Rounds)
	names := map[string]string{"flock": "`flock FILE true`", "bakeryctl lock": "`bakeryctl lock NAME -- true`", "true": "`true`",
		"empty": "an empty Go program", "start": "`bakeryctl lock`, until its request arrives"}
	rows := [][]string{{"", "p50", "p99", "p99.9", "runs"}}
	for _, s := range r.wrapper {
		rows = append(rows, []string{names[s.Name], us(s.P50US), us(s.P99US), us(s.P999US), thousands(float64(s.Count))})
	}
	p.rows(rows)
	p.text("The last two rows take turns of their own: the least that a Go program takes, and the part of `bakeryctl lock` before it has asked for " +
		"the lock. For that, the benchmark serves the socket instead of bakeryd, and kills `bakeryctl lock` when the first byte of its request arrives.")
}

func (r *results) writeFormatted(p page) {
	p.text("## Formatted for more hosts than joined")
	if !r.measured(p, "formatted") {
		return
	}
	p.text("Three hosts have joined each lockspace. Lock and unlock through bakeryd, in %d rounds of turns. p50 and p99 are medians of the rounds; p99.9 is that of all turns.", r.formatted[0].Rounds)
	rows := [][]string{{"lockspace", "p50", "p99", "p99.9", "turns", "ratio"}}
	for _, s := range r.formatted {
		rows = append(rows, []string{s.Name, us(s.P50US), us(s.P99US), us(s.P999US), thousands(float64(s.Count)), fmt.Sprintf("%.2f", s.Ratio)})
	}
	p.rows(rows)
}

func (r *results) writeIdle(p page) {
	p.text("## Idle")
	if !r.measured(p, "idle") {
		return
	}
	i := r.idle
	p.text("A bakeryd that has joined, with a lock that it has used and nothing held, watched for %.0f s; two other hosts, lease %d s.", i.Seconds, i.LeaseMS/1000)
	p.rows([][]string{
		{"what", "", "goal"},
		{"resident", fmt.Sprintf("%.1f MiB, %.1f of them anonymous", mib(i.RSSBytes), mib(i.RSSAnonBytes)), idleMemory},
		{"processor", fmt.Sprintf("%.3f %% of a core", 100*i.CPUSeconds/i.Seconds), idleCPU},
		{"threads", fmt.Sprint(i.Threads), ""},
		{"requests to the device per L/6", i.requests(), "one write, one read"},
		{"written per L/6, in total", fmt.Sprintf("%.1f KiB", i.WriteBytes/1024), ""},
		{"read per L/6, in total", fmt.Sprintf("%.1f KiB", i.ReadBytes/1024), ""},
		{"threads woken per L/6", fmt.Sprintf("%.1f times", i.Wakeups), "for that only"},
	})
	if i.NoCalls != "" {
		p.text("System calls were not counted: %s.", i.NoCalls)
		return
	}
	p.text("System calls per L/6, of another bakeryd under strace(1); they include reads and writes of other files than the device:")
	rows := [][]string{{"call", "per L/6"}}
	for _, n := range mostFirst(i.Calls) {
		rows = append(rows, []string{n, fmt.Sprintf("%.1f", i.Calls[n])})
	}
	p.rows(rows)
}

// requests returns the requests to the device as text.
func (i *idling) requests() string {
	var all []string
	for _, n := range mostFirst(i.Requests) {
		all = append(all, fmt.Sprintf("%s %.1f", n, i.Requests[n]))
	}
	return strings.Join(all, ", ")
}

func mostFirst(counts map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
