// Package render formats output: colours, tables, durations, lines that fit a terminal, a progress
// line, JSON. It knows nothing of locks and hosts. It imports only package term of the project.
package render

import (
	"cmp"
	"errors"
	"io"
	"slices"
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
func (c *Colour) String() string { return string(cmp.Or(*c, colourAuto)) }

func (c *Colour) Type() string { return "string" }

func (c *Colour) Set(text string) error {
	if !slices.Contains(c.Choices(), text) {
		return errors.New(c.Want())
	}
	*c = Colour(text)
	return nil
}

// Want returns what the flag accepts.
func (c *Colour) Want() string { return "want auto, always or never" }

// Choices returns the words that the flag accepts, for the completion of a shell.
func (c *Colour) Choices() []string {
	return []string{string(colourAuto), string(colourAlways), string(colourNever)}
}

// On reports whether output to out is coloured.
func (c Colour) On(out io.Writer, env func(string) string) bool {
	return c == colourAlways || c != colourNever && env("NO_COLOR") == "" && env("TERM") != "dumb" && term.Is(out)
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

// Paint adds colours to text if it is true.
type Paint bool

// Of returns text in the colour of l. Trailing spaces have none, so that the end of a line can be trimmed.
func (p Paint) Of(l Level, text string) string {
	shown := strings.TrimRight(text, " ")
	if !p || l == Plain || shown == "" {
		return text
	}
	return "\x1b[" + codes[l] + "m" + shown + "\x1b[0m" + text[len(shown):]
}
