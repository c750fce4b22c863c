package report

import (
	"fmt"
	"strings"
	"time"
)

// Moving is a time in a text of a report. It continues after the report: a reader that shows the
// report later replaces it in the text. An elapsed time is rounded down, a remaining one up:
// nothing happens before the time that is shown is over.
type Moving struct {
	Words string `json:"words"` // before the time
	MS    int64  `json:"ms"`    // when the report was made
	Left  bool   `json:"left"`  // whether it is a remaining time
	Over  string `json:"over"`  // replaces words and time when nothing is left
}

func elapsed(words string, ms int64) Moving { return Moving{Words: words, MS: ms} }

func left(words string, ms int64, over string) Moving { return Moving{words, ms, true, over} }

func (m Moving) String() string {
	d := time.Duration(m.MS) * time.Millisecond
	switch {
	case !m.Left:
		return m.Words + " " + Elapsed(d)
	case d <= 0:
		return m.Over
	}
	return m.Words + " " + Left(d)
}

// join returns the texts of several times.
func join(times []Moving) string {
	var words []string
	for _, m := range times {
		words = append(words, m.String())
	}
	return strings.Join(words, ", ")
}

// after returns the time when the report is of age d.
func (m Moving) after(d time.Duration) Moving {
	if m.Left {
		d = -d
	}
	m.MS += d.Milliseconds()
	return m
}

// Aged returns a text of a report when the report is of age d. The last occurrence of a time
// counts: names are before it.
func Aged(text string, times []Moving, d time.Duration) string {
	for _, m := range times {
		old := m.String()
		if i := strings.LastIndex(text, old); i >= 0 {
			text = text[:i] + m.after(d).String() + text[i+len(old):]
		}
	}
	return text
}

// Aged returns h when the report is of age d.
func (h Host) Aged(d time.Duration) Host {
	if h.SilentMS != nil {
		h.SilentMS = new(*h.SilentMS + d.Milliseconds())
	}
	if h.DeadInMS != nil {
		h.DeadInMS = new(max(0, *h.DeadInMS-d.Milliseconds()))
	}
	h.Silence = Aged(h.Silence, h.Times, d)
	return h
}

// Aged returns p when the report is of age d. A time is in one of the texts, and a name that looks
// like it can only be in an earlier one.
func (p Problem) Aged(d time.Duration) Problem {
	for _, m := range p.Times {
		for _, text := range []*string{&p.Remedy, &p.Why, &p.Text} {
			if strings.Contains(*text, m.String()) {
				*text = Aged(*text, []Moving{m}, d)
				break
			}
		}
	}
	return p
}

// Elapsed formats an elapsed time, rounded down: in seconds, from 10 minutes on in minutes, from 10
// hours on in hours.
func Elapsed(d time.Duration) string {
	unit, name := unitOf(d)
	return fmt.Sprintf("%d %s", max(0, d)/unit, name)
}

// Left formats a remaining time as Elapsed does, but rounded up.
func Left(d time.Duration) string {
	unit, name := unitOf(d)
	n := max(0, d) / unit
	if d > n*unit {
		n++
	}
	return fmt.Sprintf("%d %s", n, name)
}

// unitOf returns the unit in which a time is shown.
func unitOf(d time.Duration) (unit time.Duration, name string) {
	switch {
	case d >= 10*time.Hour:
		return time.Hour, "h"
	case d >= 10*time.Minute:
		return time.Minute, "min"
	}
	return time.Second, "s"
}
