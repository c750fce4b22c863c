// Package lock is the command bakeryctl lock without its help, which is next to that of the other
// commands. Two programs run it: the complete bakeryctl, and the one that starts at once
// (bakeryctl-lock). It knows the flags, which the command hold shares in part. It must not import
// what makes that program start later: see atOnce in test/structure.
//
// Start reading at Options.
package lock

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// Options are the options of the command line.
type Options struct {
	Take
	launch           supervise.Launch
	onRequest, value string
}

// Use is the usage of the command, without the name of the program.
const Use = "lock [flags] NAME -- COMMAND [ARG...]"

const usage = "bakeryctl " + Use

// AddFlags adds the flags to those of the command. They end at the name of the lock.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.SetInterspersed(false)
	o.Take.AddFlags(f)
	f.BoolVarP(&o.Close, "close", "o", false, "do not let COMMAND inherit the lock: its remaining processes do not hold it")
	f.BoolVar(&o.launch.Contained, "require-containment", false, "do not run COMMAND if it cannot get its own cgroup")
	f.BoolVarP(&o.launch.Verbose, "verbose", "v", false, "print when the lock is granted, and how COMMAND is contained")
	f.StringVar(&o.launch.OnLost, "on-lost", "", "when COMMAND is sent SIGTERM because of a loss, also run `CMD` in a shell")
	f.StringVar(&o.onRequest, "on-request", "", "on a request for the lock, send COMMAND a signal or run a command: `SIGNAL|CMD`")
	f.StringVar(&o.value, "value", "", "set the value of the lock to `TEXT` before COMMAND starts; not with --shared")
	f.StringArrayVar(&o.Devices, "device", nil, "use the lockspace at `PATH`, without bakeryd; repeated for several disks")
	f.BoolVar(&o.Create, "create", false, "create the lockspace of --device if the file does not exist")
}

// Parse completes the options from the parsed flags and the arguments, and checks what requires
// neither disk nor bakeryd.
func (o *Options) Parse(f *pflag.FlagSet, args []string) (err error) {
	if err := o.Resolve("lock", f); err != nil {
		return err
	}
	if slices.Contains(o.Devices, "") {
		return cli.Usage("lock", "--device is empty, want a path")
	}
	if f.Changed("value") {
		o.Value = []byte(o.value)
	}
	if err := o.parseArgs(args); err != nil {
		return err
	}
	o.launch.OnRequest, err = supervise.ParseReaction(o.onRequest)
	return err
}

// parseArgs parses the arguments.
func (o *Options) parseArgs(args []string) error {
	if len(args) == 0 {
		return cli.Arguments(usage, "lock: no lock NAME given")
	}
	o.Name = args[0]
	argv := args[1:]
	dashes := len(argv) > 0 && argv[0] == "--"
	if dashes {
		argv = argv[1:]
	}
	o.Command, o.launch.Argv = strings.Join(argv, " "), argv
	err := layout.ValidateLockName(o.Name)
	switch {
	case err != nil:
		return cli.Usage("lock", "%w", err)
	case !dashes && len(argv) > 0 && strings.HasPrefix(argv[0], "-"):
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("flag %s after the name of the lock", argv[0]),
			Hint: "put flags before NAME, and -- before a command that starts with a dash"}
	case len(argv) == 0:
		return cli.Arguments(usage, "lock: no COMMAND given to run under %q", o.Name)
	case o.Value != nil && o.Mode == client.Shared:
		return cli.Usage("lock", "--value and --shared exclude each other")
	case len(o.Value) > layout.MaxValue:
		return cli.Usage("lock", "--value has %d bytes, want at most %d", len(o.Value), layout.MaxValue)
	case o.Create && len(o.Devices) == 0:
		return cli.Usage("lock", "--create requires --device")
	case o.Create && len(o.Devices) > 1:
		return cli.Usage("lock", "--create with %d disks, want one; create a lockspace on several with bakeryctl format", len(o.Devices))
	}
	return nil
}

// Run runs the command under the lock.
func (o *Options) Run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	if len(o.Devices) == 0 {
		supervise.UseOneProcessor()
	}
	l := o.launch
	if l.Path, err = supervise.FindCommand(l.Argv[0]); err != nil {
		return err
	}
	l.Lock, l.Signals = o.Name, signals.Inherited()
	l.Stdin, l.Stdout, l.Stderr = stdin, stdout, stderr
	if len(o.Devices) == 0 {
		l.Session, l.Socket = client.NewSession(), o.Socket
	}
	o.Session, o.Stderr, o.Requests = l.Session, stderr, !l.OnRequest.None()
	inbox := signals.Open(l.Signals)
	defer func() { inbox.Close(err) }()
	code, err := supervise.Run(l, inbox, !o.NonBlock, func(onWaiting func(ahead int)) (*supervise.Grant, error) {
		return o.Acquire(ctx, inbox, onWaiting)
	})
	if err == nil && code != 0 {
		err = &cli.Failure{Code: code}
	}
	return err
}
