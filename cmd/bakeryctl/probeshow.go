package main

import (
	"fmt"
	"io"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/text"
)

func writeProbeJSON(w io.Writer, r *probeReport, _ paint) error { return writeJSON(w, r) }

func showProbe(out io.Writer, r *probeReport, p paint) error {
	count := map[probe.Verdict]int{}
	for _, f := range r.Findings {
		count[f.Verdict]++
	}
	verdict, of := "fit", good
	if !r.Fit {
		verdict, of = "unfit", bad
	}
	for _, c := range []struct {
		n         int
		one, many string
	}{{count[probe.Warning], "warning", "warnings"}, {count[probe.Unknown], "unknown", "unknown"}} {
		switch {
		case c.n == 1:
			verdict += ", 1 " + c.one
		case c.n > 1:
			verdict += fmt.Sprintf(", %d %s", c.n, c.many)
		}
	}
	if _, err := fmt.Fprintf(out, "%s: %s\n\n", text.Printable(r.Device), p.of(of, verdict)); err != nil {
		return err
	}
	err := writeTable(out, func(w io.Writer) {
		for _, f := range r.Findings {
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.cell(verdictLevel(f.Verdict), string(f.Verdict)), f.ID, text.PrintableLine(f.Detail))
			if f.Remedy != "" {
				fmt.Fprintf(w, "%s\t\t-> %s\n", p.cell(plain, ""), text.PrintableLine(f.Remedy))
			}
		}
	})
	if err != nil || r.Measured == nil {
		return err
	}
	return showMeasured(out, r.Measured)
}

func verdictLevel(v probe.Verdict) level {
	switch v {
	case probe.OK:
		return good
	case probe.Unfit:
		return bad
	}
	return warn
}

func showMeasured(out io.Writer, m *measure.Measurement) error {
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	err := writeTable(out, func(w io.Writer) {
		fmt.Fprint(w, "REQUEST\tCOUNT\tP50\tP90\tP99\tP99.9\tMAX\n")
		for _, row := range []struct {
			what string
			l    probe.Latency
		}{{"durable write", m.Write}, {"read", m.Read}, {fmt.Sprintf("read of %d slots", m.Many), m.ReadMany}} {
			l := row.l
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", row.what, l.Count, millis(l.P50), millis(l.P90), millis(l.P99), millis(l.P999), millis(l.Most))
		}
	})
	if err == nil && m.Lockspace {
		_, err = fmt.Fprintf(out, "\nwritten: this host's slot of the lock %q, which stays\n", daemon.ProbeLock)
	}
	return err
}

// millis writes a time as people compare latencies.
func millis(d time.Duration) string {
	ms := float64(d.Microseconds()) / 1000
	if ms < 0.1 {
		return fmt.Sprintf("%.3f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}
