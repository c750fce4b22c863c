// Package flags says what is wrong with a command line: the flag, its value, and what the flag accepts. It has
// values of flags that know what they accept. It imports nothing of the project.
package flags

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Unknown is the error of a flag that does not exist.
type Unknown struct {
	Flag    string // as given
	Nearest string // the flag that was probably meant; empty if none
}

func (u *Unknown) Error() string { return "unknown flag " + u.Flag }

// Hint returns the hint for an error of Explain. help is the command that lists the flags.
func Hint(err error, help string) string {
	if u, ok := errors.AsType[*Unknown](err); ok && u.Nearest != "" {
		return fmt.Sprintf("did you mean %s? %s lists the flags", u.Nearest, help)
	}
	return "run " + help
}

// Explain returns what is wrong with a command line that fs did not parse.
func Explain(fs *pflag.FlagSet, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("%s %q: %s", names(bad.GetFlag()), bad.GetValue(), Want(bad.GetFlag(), bad.GetValue(), bad.Unwrap()))
	}
	if none, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("%s has no value: %s", names(none.GetFlag()), Want(none.GetFlag(), "", nil))
	}
	if none, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := none.GetSpecifiedName()
		if none.GetSpecifiedShortnames() != "" {
			return &Unknown{Flag: "-" + name}
		}
		return &Unknown{"--" + name, nearest(fs, name)}
	}
	if bad, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("invalid flag %q: want --NAME or --NAME=VALUE", bad.GetSpecifiedFlag())
	}
	return err
}

// names returns all names of a flag: the parser does not say which one was given.
func names(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand + ", --" + f.Name
	}
	return "--" + f.Name
}

// Want returns what a flag accepts instead of a value. cause is the error of that value, nil if there is no value.
func Want(f *pflag.Flag, value string, cause error) string {
	if own, ok := f.Value.(interface{ Want() string }); ok {
		return own.Want()
	}
	switch f.Value.Type() {
	case "duration":
		example := "30s or 5m"
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			example = value + "s"
		}
		return "want a time with its unit, such as " + example
	case "int", "uint64":
		return "want a whole number"
	case "bool":
		return "want true or false"
	}
	if cause != nil {
		return cause.Error()
	}
	name, _ := pflag.UnquoteUsage(f)
	switch {
	case name == strings.ToUpper(name):
		return "want " + name
	case strings.ContainsRune("aeiou", rune(name[0])):
		return "want an " + name
	}
	return "want a " + name
}

// nearest returns the visible flag with a name like this one; empty if none is.
func nearest(fs *pflag.FlagSet, name string) (found string) {
	least := 3 // letters that differ
	fs.VisitAll(func(f *pflag.Flag) {
		d := distance(name, f.Name)
		if len(name) > 2 && strings.HasPrefix(f.Name, name) {
			d = min(d, 1)
		}
		if !f.Hidden && d < least && d < len(name) {
			least, found = d, "--"+f.Name
		}
	})
	return found
}

// distance returns how many letters of a must be added, removed or changed to get b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // of the letters of a so far
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
