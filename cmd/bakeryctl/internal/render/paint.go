// Package render formats output: colours, tables, durations, lines that fit a terminal, a progress
// line, JSON. It knows nothing of locks and hosts. It imports only package term of the project.
package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
)

// Colour is the value of the flag --color: when text output is coloured.
type Colour string

const (
	colourAuto   Colour = "auto"
	colourAlways Colour = "always"
	colourNever  Colour = "never"
)

// String, Set and Type implement pflag.Value.
func (c *Colour) String() string {
	if *c == "" {
		return string(colourAuto)
	}
	return string(*c)
}

func (c *Colour) Type() string { return "string" }

func (c *Colour) Set(text string) error {
	switch v := Colour(text); v {
	case colourAuto, colourAlways, colourNever:
		*c = v
		return nil
	}
	return fmt.Errorf("want auto, always or never")
}

// On reports whether output to out is coloured.
func (c Colour) On(out io.Writer, env func(string) string) bool {
	switch c {
	case colourAlways:
		return true
	case colourNever:
		return false
	}
	return env("NO_COLOR") == "" && env("TERM") != "dumb" && term.Is(out)
}

// Level is the meaning of a colour. A colour adds nothing that the words do not say.
type Level int

const (
	Plain Level = iota
	Good        // as it should be: live, held
	Warn        // needs attention, or waits
	Bad         // dead, lost, stuck, damaged
	Soft        // unimportant
	Head        // a heading
)

// codes are SGR parameters. The terminal chooses the shade.
var codes = [...]string{Good: "32", Warn: "33", Bad: "31", Soft: "2", Head: "1"}

const unpaint = "\x1b[0m"

// Paint adds colours to text if it is true.
type Paint bool

// Of returns text in the colour of l.
func (p Paint) Of(l Level, text string) string {
	if !p || l == Plain || text == "" {
		return text
	}
	return "\x1b[" + codes[l] + "m" + text + unpaint
}

// Marks stand for colours while a table is being aligned. Each is one column wide there. They are
// from a private area of Unicode, which output never contains: text.Printable and Safe escape it.
const (
	markFirst = '\uE000' // + level: text of that level follows
	markEnd   = '\uE0FF' // end of that text
	markHead  = '\uE0FE' // at the end of a line: the whole line is a heading
)

// Cell marks a table cell with its colour. If one cell of a column is marked, all must be, the
// heading included: a mark counts as one column until WriteTable removes it.
func (p Paint) Cell(l Level, text string) string {
	if !p {
		return text
	}
	return string(markFirst+rune(l)) + text + string(markEnd)
}

// Heading returns the end of a heading line.
func (p Paint) Heading() string {
	if !p {
		return "\n"
	}
	return string(markHead) + "\n"
}

// paintLine replaces the marks in a line by colour codes.
func paintLine(line string) string {
	if !strings.ContainsFunc(line, isMark) {
		return line
	}
	if strings.ContainsRune(line, markHead) {
		bare := strings.TrimRight(strings.Map(func(r rune) rune {
			if isMark(r) {
				return -1
			}
			return r
		}, line), " ")
		return Paint(true).Of(Head, bare)
	}
	var done strings.Builder
	l, begun := Plain, 0
	for i, r := range line {
		if !isMark(r) {
			continue
		}
		done.WriteString(Paint(true).Of(l, line[begun:i]))
		l, begun = Plain, i+len(string(r))
		if r != markEnd {
			l = Level(r - markFirst)
		}
	}
	done.WriteString(line[begun:])
	return strings.TrimRight(done.String(), " ")
}

func isMark(r rune) bool { return r >= markFirst && r <= markEnd }
