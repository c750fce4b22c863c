package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// colour says when what people read is coloured: the flag --color.
type colour string

const (
	colourAuto   colour = "auto"
	colourAlways colour = "always"
	colourNever  colour = "never"
)

// String, Set and Type implement pflag.Value.
func (c *colour) String() string {
	if *c == "" {
		return string(colourAuto)
	}
	return string(*c)
}

func (c *colour) Type() string { return "string" }

func (c *colour) Set(text string) error {
	switch v := colour(text); v {
	case colourAuto, colourAlways, colourNever:
		*c = v
		return nil
	}
	return fmt.Errorf("want auto, always or never")
}

// on tells whether what goes to out is coloured.
func (c colour) on(out io.Writer, env func(string) string) bool {
	switch c {
	case colourAlways:
		return true
	case colourNever:
		return false
	}
	return env("NO_COLOR") == "" && env("TERM") != "dumb" && isTerminal(out)
}

// colourFlag gives a command the flag --color.
func (a *app) colourFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.colour, "color", "colour it `auto|always|never`; auto: on a terminal, unless NO_COLOR is set")
}

// paint returns how to colour what is printed on standard output.
func (a *app) paint() paint { return paint(a.colour.on(a.stdout, os.Getenv)) }

// level is what a colour says. None says what the words do not say too.
type level int

const (
	plain level = iota
	good        // as it should be: live, held
	warn        // somebody should know, or waits
	bad         // dead, lost, stuck, damaged
	soft        // of no account
	head        // a heading
)

// codes are the parameters of SGR; they leave it to the terminal which green it is.
var codes = [...]string{good: "32", warn: "33", bad: "31", soft: "2", head: "1"}

const unpaint = "\x1b[0m"

// paint colours text, or leaves it as it is.
type paint bool

func (p paint) of(l level, text string) string {
	if !p || l == plain || text == "" {
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

// cell marks a cell of a table. If one of a column is marked all are to be, that of the heading too: marks are as wide as text
// until writeTable takes them out.
func (p paint) cell(l level, text string) string {
	if !p {
		return text
	}
	return string(markFirst+rune(l)) + text + string(markEnd)
}

// heading is the end of a line of headings.
func (p paint) heading() string {
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
		return paint(true).of(head, bare)
	}
	var done strings.Builder
	l, begun := plain, 0
	for i, r := range line {
		if !isMark(r) {
			continue
		}
		done.WriteString(paint(true).of(l, line[begun:i]))
		l, begun = plain, i+len(string(r))
		if r != markEnd {
			l = level(r - markFirst)
		}
	}
	done.WriteString(line[begun:])
	return strings.TrimRight(done.String(), " ")
}

func isMark(r rune) bool { return r >= markFirst && r <= markEnd }
