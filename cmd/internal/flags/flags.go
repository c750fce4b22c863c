// Package flags explains the values that flags do not accept. It imports nothing of the project.
package flags

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// Explain returns an error of parsing a command line. If a flag did not accept a value, it names both, and what the
// flag accepts.
func Explain(err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), Want(bad.GetFlag(), bad.GetValue(), bad.Unwrap()))
	}
	return err
}

// Want returns what a flag accepts instead of a value. For a type of the project that is what cause says.
func Want(f *pflag.Flag, value string, cause error) string {
	switch f.Value.Type() {
	case "duration":
		example := "30s or 5m"
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			example = value + "s"
		}
		return "want a time with its unit, such as " + example
	case "int":
		return "want a whole number"
	case "bool":
		return "want true or false"
	}
	return cause.Error()
}
