package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// writeTable writes lines of cells, aligned, without the spaces that empty cells leave at the end, and coloured where they are
// marked so.
func writeTable(out io.Writer, fill func(w io.Writer)) error {
	var text bytes.Buffer
	w := newTable(&text)
	fill(w)
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(out, paintLine(strings.TrimRight(line, " \n"))); err != nil {
			return err
		}
	}
	return nil
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// age says how long ago something was, to two places.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s" // another host's clock
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// seconds writes a span of milliseconds for a sentence: 2.1 s, 21 s, 2m10s.
func seconds(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", float64(ms/100)/10)
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	default:
		return age(d)
	}
}
