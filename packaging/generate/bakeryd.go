package generate

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// flag is a flag of bakeryd.
type flag struct {
	Name, Short  string
	Value        string // what its value is, such as path; empty if it has none
	About        string
	AboutSetting string // the same without the default, if that is a plain value
	Default      string // the plain value
	Choices      string // all values, if they are a fixed set
	IsPath       bool   // its value is a path
	Variable     string // in the environment; empty if none
}

var (
	flagOfHelp = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z-]+)(?: (\S+))?   +(.*)$`)
	withValue  = regexp.MustCompile(`^(.*) \(default:? "?([^ ']*?)"?\)$`)
	paths      = []string{"device", "path", "directory", "file"}
	choices    = map[string]string{
		"host-id": "auto", "fence": "pr exec", "log-level": "debug info warn error", "log-format": "auto text json journal",
	}
)

// bakerydFlags returns the flags that the help of bakeryd lists.
func bakerydFlags(program string) (flags []flag, err error) {
	cmd := exec.Command(program, "--help")
	cmd.Env = []string{} // no variable changes a default
	help, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", program, err)
	}
	for _, m := range flagOfHelp.FindAllStringSubmatch(string(help), -1) {
		f := flag{Short: m[1], Name: m[2], Value: m[3], About: m[4], AboutSetting: m[4], Choices: choices[m[2]], IsPath: slices.Contains(paths, m[3])}
		if d := withValue.FindStringSubmatch(f.About); d != nil {
			f.AboutSetting, f.Default = d[1], strings.TrimSuffix(d[2], "none") // "none" is no value
		}
		if f.Value != "" {
			f.Variable = "BAKERYD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		}
		flags = append(flags, f)
	}
	return flags, nil
}
