package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/bench"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Report is the output of a bench.
type Report struct {
	Device    string    `json:"device"`
	Lockspace string    `json:"lockspace"` // its name, or uuid
	Stride    int       `json:"stride"`
	Hosts     int       `json:"hosts"`   // that the lockspace was formatted for
	Highest   int       `json:"highest"` // highest host id that a read of slots covers
	At        time.Time `json:"at"`
	*bench.Result
}

func newReport(s *report.Report, r *bench.Result) *Report {
	l := s.Lockspace
	b := &Report{Device: l.Device, Lockspace: cmp.Or(l.Name, l.UUID.String()), Stride: l.Stride, Hosts: l.Hosts,
		Highest: r.Slots, At: time.Now().Truncate(time.Second), Result: r}
	for _, h := range s.Hosts { // the read horizon, if nothing was read
		b.Highest = max(b.Highest, h.ReadHorizon)
	}
	return b
}

// Show writes a report as text.
func Show(out io.Writer, r *Report) error {
	w := bufio.NewWriter(out) // Flush returns the first error of all writes
	fmt.Fprintf(w, "lockspace %s on %s\n  records %d bytes apart, a read covers %s of %d\n\n",
		text.Printable(r.Lockspace), text.Printable(r.Device), r.Stride, render.Count(r.Highest, "slot"), r.Hosts)
	_ = render.WriteTable(w, func(w io.Writer) { showLatencies(w, r.Result) })
	_ = render.WriteTable(w, func(w io.Writer) { showOthers(w, r.Result) })
	if r.Floor != nil && (r.Uncontended != nil || r.InProcess != nil) {
		showHistogram(w, r.Result)
	}
	if len(r.Skipped) > 0 {
		fmt.Fprintln(w)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "skipped %s: %s\n", s.Name, s.Reason)
	}
	return w.Flush()
}

// showLatencies writes the measurements that have a floor.
func showLatencies(w io.Writer, r *bench.Result) {
	if r.Floor == nil {
		return
	}
	fmt.Fprint(w, "\tCOUNT\tP50\tP99\tP99.9\tFLOOR\tRATIO\n")
	row := func(what string, d bench.Dist) {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s", what, d.Count, render.Micros(d.P50US), render.Micros(d.P99US), render.Micros(d.P999US))
	}
	row("floor: write, read, write", r.Floor.Dist)
	fmt.Fprintln(w)
	for _, l := range []struct {
		what string
		*bench.Lock
	}{{"uncontended, by bakeryd", r.Uncontended}, {"uncontended, in process", r.InProcess}} {
		if l.Lock != nil {
			row(l.what, l.Dist)
			fmt.Fprintf(w, "\t%s\t%.2f\n", render.Micros(l.FloorP50US), l.Ratio)
		}
	}
	if h := r.HandOver; h != nil {
		row("hand-over between hosts", h.Dist)
		fmt.Fprintf(w, "\t%s\t%.2f\n", render.Micros(h.FloorP50US), h.Ratio)
	}
	fmt.Fprintln(w)
}

// showOthers writes the measurements without a floor.
func showOthers(w io.Writer, r *bench.Result) {
	if h := r.HandOff; h != nil {
		fmt.Fprintf(w, "local hand-off\t%d clients: %d a second by bakeryd", h.Clients, h.PerSecond)
		if h.InProcessPerSecond > 0 {
			fmt.Fprintf(w, ", %d in process", h.InProcessPerSecond)
		}
		fmt.Fprintln(w)
	}
	if h := r.HandOver; h != nil {
		fmt.Fprintf(w, "hand-over\t%s, each holds it for %s\n", h.Between, render.Micros(h.HoldUS))
	}
	if c := r.Wrapper; c != nil {
		fmt.Fprintf(w, "wrapper\tbakeryctl lock NAME -- true: %s\n\t", render.Micros(c.P50US))
		if c.OverFlockUS != nil {
			fmt.Fprintf(w, "%s more than flock FILE true, %s; ", render.Micros(*c.OverFlockUS), render.Micros(c.FlockP50US))
		}
		fmt.Fprintf(w, "true alone: %s\n", render.Micros(c.TrueP50US))
	}
}

const (
	barRows  = 16 // maximum, without the last one
	barWidth = 22
	leastBar = 1.03 // minimum ratio of two bounds
)

// showHistogram draws the distributions of the floor and the lock next to each other, in percent.
func showHistogram(out io.Writer, r *bench.Result) {
	lock, what := r.Uncontended, "uncontended, by bakeryd"
	if lock == nil {
		lock, what = r.InProcess, "uncontended, in process"
	}
	bounds := barBounds(r.Floor.Times, lock.Times)
	left, right := r.Floor.Times.Counts(bounds), lock.Times.Counts(bounds)
	most := 0.0
	for i := range left {
		most = max(most, share(left, i), share(right, i))
	}
	fmt.Fprintf(out, "\n%11s  %-31s%s\n", "", "floor", what)
	for i := range left {
		label := "< " + render.Micros(bounds[min(i, len(bounds)-1)].Microseconds())
		if i == len(bounds) {
			label = "longer"
		}
		line := fmt.Sprintf("%11s  %-31s%s", label, bar(left, i, most), bar(right, i, most))
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}

// barBounds returns bounds that cover nearly all times, with a constant ratio.
func barBounds(a, b *latency.Recorder) []time.Duration {
	low, high := min(a.At(0.5), b.At(0.5)), max(a.At(99), b.At(99))
	step := max(leastBar, math.Pow(float64(high)/float64(low), 1/float64(barRows-1)))
	bounds := []time.Duration{}
	for at := float64(low); len(bounds) < barRows; at *= step {
		bound := time.Duration(math.Ceil(at/1000)) * time.Microsecond
		if len(bounds) > 0 && bound <= bounds[len(bounds)-1] {
			bound = bounds[len(bounds)-1] + time.Microsecond
		}
		bounds = append(bounds, bound)
		if bound > high {
			break
		}
	}
	return bounds
}

func share(counts []int64, i int) float64 {
	all := int64(0)
	for _, n := range counts {
		all += n
	}
	return float64(counts[i]) / float64(max(1, all))
}

// bar formats a share and its bar; the longest bar stands for most.
func bar(counts []int64, i int, most float64) string {
	if counts[i] == 0 {
		return ""
	}
	s := share(counts, i)
	return fmt.Sprintf("%5.1f%% %s", 100*s, strings.Repeat("#", max(1, int(math.Round(barWidth*s/most)))))
}
