package lock

import (
	"io"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
)

// Direct returns the options of a command line of bakeryctl if that is a valid lock command for
// bakeryd. It returns false for all that requires the complete program: other commands, --help,
// --device, and errors of usage, which that reports.
func Direct(args []string) (o *Options, ok bool) {
	o = new(Options)
	global := newSet("bakeryctl")
	global.SetInterspersed(false) // the flags of the command come after its name
	call.SocketFlag(global, &o.Socket)
	if global.Parse(args) != nil || global.Arg(0) != "lock" {
		return nil, false
	}
	f := newSet("lock")
	f.AddFlagSet(global)
	o.AddFlags(f)
	if f.Parse(global.Args()[1:]) != nil || o.Parse(f, f.Args()) != nil || len(o.Devices) > 0 || o.Socket == "" {
		return nil, false
	}
	return o, true
}

func newSet(name string) *pflag.FlagSet {
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.SetOutput(io.Discard) // --help writes there
	return f
}

// Complete is the name of the complete program next to bakeryctl, which is bakeryctl-lock, where
// cmd/build or a package has installed both.
const Complete = "bakeryctl-full"

// Program returns the path of bakeryctl. self is that of the complete program, which is bakeryctl
// itself if it has another name.
func Program(self string) string {
	if filepath.Base(self) == Complete {
		return filepath.Join(filepath.Dir(self), "bakeryctl")
	}
	return self
}
