package flags

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Int adds a flag whose value is a whole number from least to most; math.MaxInt is no limit. It may be written as in
// Go, such as 0x10. Its default is *p.
func Int(fs *pflag.FlagSet, p *int, name, shorthand string, least, most int, usage string) {
	fs.VarP(&number{p, least, most, 0, ""}, name, shorthand, usage)
}

// IntOr adds a flag whose value is a decimal number from 1, or a word, which sets 0. Its default is *p.
func IntOr(fs *pflag.FlagSet, p *int, name, word, usage string) {
	fs.Var(&number{p, 1, math.MaxInt, 10, word}, name, usage)
}

// number is the value of Int and IntOr.
type number struct {
	p           *int
	least, most int
	base        int    // 0: by the prefix of the number, as pflag reads one
	zero        string // the word for 0; empty: none
}

// Type, String and Set implement pflag.Value.
func (n *number) Type() string { return "int" }

func (n *number) String() string {
	if n.zero != "" && *n.p == 0 {
		return n.zero
	}
	return strconv.Itoa(*n.p)
}

func (n *number) Set(text string) error {
	if n.zero != "" && text == n.zero {
		*n.p = 0
		return nil
	}
	wide, err := strconv.ParseInt(text, n.base, strconv.IntSize)
	i := int(wide)
	if err != nil || i < n.least || i > n.most {
		return errors.New(n.Want())
	}
	*n.p = i
	return nil
}

// Want returns which numbers the flag accepts.
func (n *number) Want() string {
	switch {
	case n.zero != "":
		return fmt.Sprintf("want a whole number from %d, or %s", n.least, n.zero)
	case n.most == math.MaxInt:
		return fmt.Sprintf("want a whole number from %d", n.least)
	}
	return fmt.Sprintf("want a whole number from %d to %d", n.least, n.most)
}

// Choice adds a flag whose value is one of several words. Its default is *p.
func Choice(fs *pflag.FlagSet, p *string, name string, words []string, usage string) {
	fs.Var(&choice{p, words}, name, usage)
}

// choice is the value of Choice.
type choice struct {
	p     *string
	words []string
}

// Type, String and Set implement pflag.Value.
func (c *choice) Type() string { return "string" }

func (c *choice) String() string { return *c.p }

func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return errors.New(c.Want())
	}
	*c.p = text
	return nil
}

// Want returns which words the flag accepts.
func (c *choice) Want() string { return "want " + Or(c.words) }

// Choices returns the words, for the completion of a shell.
func (c *choice) Choices() []string { return c.words }

// Or joins words to a text such as "a, b or c".
func Or(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
