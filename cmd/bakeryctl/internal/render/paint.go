// Package render knows how texts become what people and programs read: colours, tables, durations,
// lines that fit a terminal, a line of progress, JSON. It knows nothing of locks and hosts, and
// imports only package term of the project.
package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
)

// Colour says when what people read is coloured: the flag --color.
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

// On reports whether what goes to out is coloured.
func (c Colour) On(out io.Writer, env func(string) string) bool {
	switch c {
	case colourAlways:
		return true
	case colourNever:
		return false
	}
	return env("NO_COLOR") == "" && env("TERM") != "dumb" && term.Is(out)
}

// Level is what a colour says. None says what the words do not say too.
type Level int

const (
	Plain Level = iota
	Good        // as it should be: live, held
	Warn        // somebody should know, or waits
	Bad         // dead, lost, stuck, damaged
	Soft        // of no account
	Head        // a heading
)

// codes are the parameters of SGR; they leave it to the terminal which green it is.
var codes = [...]string{Good: "32", Warn: "33", Bad: "31", Soft: "2", Head: "1"}

const unpaint = "\x1b[0m"

// Paint colours text, or leaves it as it is.
type Paint bool

// Of returns text in the colour of l.
func (p Paint) Of(l Level, text string) string {
	if !p || l == Plain || text == "" {
		return text
	}
	return "\x1b[" + codes[l] + "m" + text + unpaint
}

// Marks stand for colours while a table is being aligned: each takes the place of one letter there. They are of a private
// area of Unicode, which nothing that is printed has: Printable writes it out.
const (
	markFirst = '\uE000' // + level: what follows is of it
	markEnd   = '\uE0FF' // it ends
	markHead  = '\uE0FE' // at the end of a line: all of it is a heading
)

// Cell marks a cell of a table. If one of a column is marked all are to be, that of the heading
// too: marks are as wide as text until WriteTable takes them out.
func (p Paint) Cell(l Level, text string) string {
	if !p {
		return text
	}
	return string(markFirst+rune(l)) + text + string(markEnd)
}

// Heading is the end of a line of headings.
func (p Paint) Heading() string {
	if !p {
		return "\n"
	}
	return string(markHead) + "\n"
}

// paintLine makes colours of the marks in a line.
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
