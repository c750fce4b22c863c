package main

import (
	"fmt"
	"math"

	"github.com/bakeryd/bakeryd/test/bench/scale"
)

// figure is a plot for test/bench/plot.
type figure struct {
	File   string `json:"file"`
	Title  string `json:"title"`
	X      string `json:"x"`
	Y      string `json:"y"`
	Lines  []line `json:"lines"`
	XTicks []tick `json:"x_ticks"`
	YTicks []tick `json:"y_ticks"`
}

type line struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
}

type tick struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// plots returns the report's plots. Both axes are logarithmic, so that proportional growth is a
// straight line.
func (r *results) plots() []figure {
	if r.scale == nil || len(r.scale.Points) == 0 {
		return []figure{}
	}
	g := newGrid(r.scale.Points)
	bytes := figure{File: "scale-bytes.svg", Title: "Bytes read", X: "hosts", XTicks: numbers(g.hosts)}
	for _, of := range []struct {
		name string
		y    func(scale.Point) float64
	}{
		{"for the heartbeat, per L/6", func(p scale.Point) float64 { return float64(p.Heartbeat.ReadBytes) }},
		{"for an acquire", func(p scale.Point) float64 { return float64(p.Acquire.ReadBytes) }},
	} {
		bytes.Lines = append(bytes.Lines, g.line(of.name, g.hosts, func(h int) scale.Point { return g.point(h, least(g.locks)) }, of.y))
	}
	memory := figure{File: "scale-memory.svg", Title: "Memory in use of an idle bakeryd", X: "locks that were used", XTicks: numbers(g.locks)}
	for _, h := range g.hosts {
		memory.Lines = append(memory.Lines, g.line(count(h, "host"), g.locks, func(l int) scale.Point { return g.point(h, l) },
			func(p scale.Point) float64 { return float64(p.Memory.HeapBytes - p.Memory.BeforeBytes) }))
	}
	status := figure{File: "scale-status.svg", Title: "Time to status", X: "hosts", XTicks: numbers(g.hosts)}
	for _, l := range g.locks {
		status.Lines = append(status.Lines, g.line(count(l, "lock"), g.hosts, func(h int) scale.Point { return g.point(h, l) },
			func(p scale.Point) float64 { return p.StatusMS }))
	}
	bytes.YTicks, memory.YTicks = bytes.marks(4, byteText), memory.marks(4, byteText)
	status.YTicks = status.marks(10, func(v float64) string { return fmt.Sprintf("%g ms", v) })
	return []figure{bytes, memory, status, r.waitersPlot()}
}

func (r *results) waitersPlot() figure {
	f := figure{File: "scale-waiters.svg", Title: "Reads a second while one lock is held", X: "waiting hosts"}
	all, first := line{Name: "all"}, line{Name: "the first waiter"}
	var x []int
	for _, w := range r.scale.Waiters {
		x = append(x, w.Waiters)
		all.Points = append(all.Points, [2]float64{float64(w.Waiters), w.Reads})
		first.Points = append(first.Points, [2]float64{float64(w.Waiters), w.FirstReads})
	}
	f.XTicks, f.Lines = numbers(x), []line{all, first}
	f.YTicks = f.marks(10, func(v float64) string { return fmt.Sprintf("%g", v) })
	return f
}

func (g grid) line(name string, axis []int, at func(int) scale.Point, y func(scale.Point) float64) line {
	l := line{Name: name}
	for _, x := range axis {
		if v := y(at(x)); v > 0 {
			l.Points = append(l.Points, [2]float64{float64(x), v})
		}
	}
	return l
}

func numbers(axis []int) (marks []tick) {
	for _, n := range axis {
		marks = append(marks, tick{float64(n), thousands(float64(n))})
	}
	return marks
}

func byteText(v float64) string { return size(int64(v)) }

// marks returns powers of a base around all values.
func (f figure) marks(base float64, text func(float64) string) (marks []tick) {
	low, high := math.Inf(1), 0.0
	for _, l := range f.Lines {
		for _, p := range l.Points {
			low, high = min(low, p[1]), max(high, p[1])
		}
	}
	if high == 0 {
		return nil
	}
	first := math.Floor(math.Log(low) / math.Log(base))
	for n := first; ; n++ {
		v := math.Pow(base, n)
		marks = append(marks, tick{v, text(v)})
		if v >= high {
			return marks
		}
	}
}
