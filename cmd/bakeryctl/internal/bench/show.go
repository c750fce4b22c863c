package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Report is the output of a bench. A skipped measurement is nil. Times are in whole microseconds.
type Report struct {
	Device      string       `json:"device"`
	Lockspace   string       `json:"lockspace"` // its name, or uuid
	Stride      int          `json:"stride"`
	Hosts       int          `json:"hosts"`                 // that the lockspace was formatted for
	Highest     int          `json:"highest"`               // highest host id that a read of slots covers
	At          time.Time    `json:"at"`                    // time of the measurement
	Floor       *floor       `json:"floor,omitempty"`       // of the device
	Toy         *toyTimes    `json:"toy,omitempty"`         // of a plain socket server
	Uncontended *socketTimes `json:"uncontended,omitempty"` // of a lock through bakeryd
	InProcess   *lockTimes   `json:"in_process,omitempty"`  // of a lock without a socket
	Reacquire   *reacquired  `json:"reacquire,omitempty"`   // of a lock that the same client takes again
	HandOver    *relay       `json:"handover,omitempty"`    // of a lock that passes between hosts
	HandOff     *handOffs    `json:"handoff,omitempty"`     // of a lock that passes between clients of a host
	Wrapper     *wrapped     `json:"wrapper,omitempty"`     // of bakeryctl lock
	Skipped     []omission   `json:"skipped"`               // never nil
}

// omission is a skipped measurement.
type omission struct {
	Name   string `json:"name"`   // of the measurement
	Reason string `json:"reason"` // why it was skipped
}

// describe sets what a status shows of the lockspace.
func (r *Report) describe(s *report.Report) {
	l := s.Lockspace
	r.Device, r.Lockspace, r.Stride, r.Hosts = l.Device, cmp.Or(l.Name, l.UUID.String()), l.Stride, l.Hosts
	for _, h := range s.Hosts {
		r.Highest = max(r.Highest, h.ReadHorizon)
	}
}

// Show writes a report as text.
func Show(out io.Writer, r *Report) error {
	w := bufio.NewWriter(out) // Flush returns the first error of all writes
	fmt.Fprintf(w, "lockspace %s on %s\n  records %d bytes apart, a read covers %s of %d\n\n",
		text.Printable(r.Lockspace), text.Printable(r.Device), r.Stride, render.Count(r.Highest, "slot"), r.Hosts)
	_ = render.WriteTable(w, func(w io.Writer) { showLatencies(w, r) })
	_ = render.WriteTable(w, func(w io.Writer) { showHandOffs(w, r) })
	_ = render.WriteTable(w, func(w io.Writer) { showOthers(w, r) })
	if r.Floor != nil && (r.Uncontended != nil || r.InProcess != nil) {
		showHistogram(w, r)
	}
	if len(r.Skipped) > 0 {
		fmt.Fprintln(w)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "skipped %s: %s\n", s.Name, s.Reason)
	}
	return w.Flush()
}

// showLatencies writes the times of a lock, next to the floor if there is one.
func showLatencies(w io.Writer, r *Report) {
	var rows []string
	row := func(what string, d dist, floor string) {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%s%s\n", what, d.Count, quantiles(d), floor))
	}
	comparedRow := func(what string, c compared) {
		row(what, c.dist, fmt.Sprintf("\t%s\t%.2f", render.Micros(c.FloorP50US), c.Ratio))
	}
	if r.Floor != nil {
		row("floor: write, read, write", r.Floor.dist, "")
	}
	if r.Toy != nil && r.Toy.dist != nil {
		row("toy: two round trips", *r.Toy.dist, "")
	}
	if r.Uncontended != nil {
		comparedRow(byBakeryd, r.Uncontended.compared)
	}
	if r.InProcess != nil {
		comparedRow(byProcess, r.InProcess.compared)
	}
	if r.Reacquire != nil {
		row("re-acquire, by bakeryd", r.Reacquire.dist, "")
	}
	if r.HandOver != nil {
		comparedRow("hand-over between hosts", r.HandOver.compared)
	}
	if len(rows) > 0 {
		fmt.Fprintf(w, "\tCOUNT\tP50\tP99\tP99.9\tFLOOR\tRATIO\n%s\n", strings.Join(rows, ""))
	}
}

// quantiles formats the quantiles that are shown of all times.
func quantiles(d dist) string {
	return render.Micros(d.P50US) + "\t" + render.Micros(d.P99US) + "\t" + render.Micros(d.P999US)
}

// showHandOffs writes the hand-offs, next to those of the toy.
func showHandOffs(w io.Writer, r *Report) {
	h := r.HandOff
	if h == nil {
		return
	}
	fmt.Fprint(w, "local hand-off\tPER SECOND\tTOY\tRATIO\tWAIT P50\tP99\tP99.9\n")
	for _, c := range h.ByClients {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%s\n", render.Count(c.Clients, "client"), c.PerSecond, c.ToyPerSecond, c.Ratio, quantiles(c.Wait))
	}
	if h.InProcessPerSecond > 0 {
		fmt.Fprintf(w, "%s, in process\t%d\n", render.Count(h.Clients, "client"), h.InProcessPerSecond)
	}
	fmt.Fprintln(w)
}

// showOthers writes what the tables do not show.
func showOthers(w io.Writer, r *Report) {
	if l := r.Uncontended; l != nil && l.AddedUS < 0 {
		fmt.Fprintf(w, "uncontended\tbakeryd is %s faster than the floor: the machine is busy\n", render.Micros(-l.AddedUS))
	} else if l != nil {
		fmt.Fprintf(w, "uncontended\tbakeryd adds %s to the floor: %.2f x the toy\n", render.Micros(l.AddedUS), l.AddedRatio)
	}
	if l := r.Reacquire; l != nil {
		fmt.Fprintf(w, "re-acquire\t%.2f x the toy; %d of %d grants without a request to the disk\n", l.Ratio, l.WithoutIO, l.Count)
	}
	if h := r.HandOver; h != nil {
		fmt.Fprintf(w, "hand-over\t%s, each holds it for %s\n", h.Between, render.Micros(h.HoldUS))
	}
	if c := r.Wrapper; c != nil {
		fmt.Fprintf(w, "wrapper\tbakeryctl lock NAME -- true: %s, P99 %s, P99.9 %s\n\t", render.Micros(c.P50US), render.Micros(c.P99US), render.Micros(c.P999US))
		if c.OverFlockUS != nil {
			fmt.Fprintf(w, "%s more than flock FILE true, %s; ", render.Micros(*c.OverFlockUS), render.Micros(c.FlockP50US))
		}
		fmt.Fprintf(w, "true alone: %s\n", render.Micros(c.TrueP50US))
	}
}

// The two ways to an uncontended lock.
const (
	byBakeryd = "uncontended, by bakeryd"
	byProcess = "uncontended, in process"
)

const (
	barRows  = 16 // maximum, without the last one
	barWidth = 22
	leastBar = 1.03 // minimum ratio of two bounds
)

// showHistogram draws the distributions of the floor and the lock next to each other, in percent.
func showHistogram(out io.Writer, r *Report) {
	lock, what := r.InProcess, byProcess
	if r.Uncontended != nil {
		lock, what = &r.Uncontended.lockTimes, byBakeryd
	}
	bounds := barBounds(r.Floor.times, lock.times)
	left, right := shares(r.Floor.times, bounds), shares(lock.times, bounds)
	most := max(slices.Max(left), slices.Max(right))
	fmt.Fprintf(out, "\n%11s  %-31s%s\n", "", "floor", what)
	for i := range left {
		label := "< " + render.Micros(bounds[min(i, len(bounds)-1)].Microseconds())
		if i == len(bounds) {
			label = "longer"
		}
		line := fmt.Sprintf("%11s  %-31s%s", label, bar(left[i], most), bar(right[i], most))
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}

// barBounds returns bounds that cover nearly all times, with a constant ratio.
func barBounds(a, b *latency.Recorder) (bounds []time.Duration) {
	low, high := min(a.At(0.5), b.At(0.5)), max(a.At(99), b.At(99))
	step := max(leastBar, math.Pow(float64(high)/float64(low), 1/float64(barRows-1)))
	bound := time.Duration(0)
	for at := float64(low); len(bounds) < barRows && bound <= high; at *= step {
		bound = max(bound+time.Microsecond, time.Duration(math.Ceil(at/1000))*time.Microsecond)
		bounds = append(bounds, bound)
	}
	return bounds
}

// shares returns the parts of all times that the bounds separate.
func shares(times *latency.Recorder, bounds []time.Duration) (parts []float64) {
	for _, n := range times.Counts(bounds) {
		parts = append(parts, float64(n)/float64(times.Count()))
	}
	return parts
}

// bar formats a share and its bar; the longest bar stands for most.
func bar(share, most float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf("%5.1f%% %s", 100*share, strings.Repeat("#", max(1, int(math.Round(barWidth*share/most)))))
}
