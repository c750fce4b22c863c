package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bakeryd/bakeryd/cmd/internal/flags"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/server"
)

const usage = `bakeryd joins this host to the lockspace on a shared device and serves its locks.

Usage:
  bakeryd --device DEV [--device DEV...] [--host-id N|auto] [flags]

Every flag can also be set in the environment: --host-id as BAKERYD_HOST_ID,
and so on; the command line has priority. A variable for a flag that may be repeated
has its values on several lines, or separated by spaces.

Flags:
%s
Examples:
  bakeryctl format /dev/mapper/locks --hosts 16
  bakeryd --device /dev/mapper/locks --host-id 3
  bakeryctl lock nightly-backup -- /usr/local/bin/backup

Signals: on SIGTERM bakeryd ends. Holds stay, and commands continue, if it starts
again within the lease; otherwise the commands are stopped in time. With no holds it
leaves the lockspace. On SIGINT it stops the holders first, then leaves. On SIGHUP it
reloads the policy file; an invalid one is logged and changes nothing.

A policy file has lines such as "allow user alice backup-* restore-*" and "allow group
ops *". Root and bakeryd's own user may do everything; only they may evict and remove.

Exit codes: 0 after leaving, or when the next bakeryd is to continue; 64 for a wrong
command line; 66 when the device or lockspace is not usable; 69 when no host id is
available, the socket is in use, the limit of open files is too low, or the watchdog or
fence agent is not usable; 75 when holders were left behind.
`

// options is the parsed command line and environment.
type options struct {
	daemon    daemon.Config
	socket    string
	sanlock   string // path of the socket for clients of sanlock; empty if none
	policy    string // path of the policy file; empty if none
	listen    string // empty: no network
	logLevel  slog.Level
	logFormat string
	version   bool
	help      string // text to print instead of running

	unknown []string        // unknown variables named BAKERYD_*
	env     map[string]bool // flags that a variable has set
}

// variable returns the variable for a flag.
func variable(flag string) string {
	return "BAKERYD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// setting returns how a flag was set: its name, or its variable.
func (o *options) setting(flag string) string {
	if o.env[flag] {
		return variable(flag)
	}
	return "--" + flag
}

// parse returns the options of a command line and environment, or what is wrong with them.
func parse(args, environ []string) (options, error) {
	o := options{logFormat: "auto"}
	o.daemon.Handoff, o.daemon.Fence.Agent = 8, "pr"
	fs := pflag.NewFlagSet("bakeryd", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.StringArrayVar(&o.daemon.Devices, "device", nil, "block `device` or file with the lockspace; repeated for a lockspace on several disks, in any order")
	flags.IntOr(fs, &o.daemon.HostID, "host-id", "auto", "this host's `id`, 1 to the lockspace's number of hosts, or auto")
	fs.StringVar(&o.daemon.Name, "name", "", "this host's `name`, shown in listings (default: the hostname)")
	fs.StringVar(&o.socket, "socket", "/run/bakery/bakeryd.sock", "`path` of the Unix socket to serve")
	fs.StringVar(&o.sanlock, "sanlock-socket", "", "`path` of a socket to serve as sanlock does, for lvmlockd, libvirt and vdsm: /run/sanlock/sanlock.sock (default: none)")
	fs.StringVar(&o.policy, "policy-file", "", "`path` of a file that says which users may take which locks (default: every user that can open the socket may take all)")
	fs.StringVar(&o.listen, "listen", "", "loopback `address` and port to serve the status page and metrics on, such as 127.0.0.1:9415 (default: none)")
	fs.StringVar(&o.daemon.Watchdog, "watchdog", "", "`device` that resets this host when a lost lock's command cannot be stopped, such as /dev/watchdog")
	flags.Choice(fs, &o.daemon.Fence.Agent, "fence", []string{"pr", "exec"}, "`agent` that fences dead hosts if the lockspace's policy is fence: pr or exec")
	fs.StringVar(&o.daemon.Fence.Command, "fence-exec", "", "shell `command` of agent exec, which it selects: fences $BAKERY_FENCE_HOST; exit 0 confirms")
	fs.StringArrayVar(&o.daemon.Fence.Devices, "fence-device", nil, "agent pr: another `device` to fence dead hosts from; may be repeated")
	flags.Int(fs, &o.daemon.Handoff, "handoff", "", 1, math.MaxInt, "`times` a lock may pass between local clients while another host waits")
	fs.DurationVar(&o.daemon.Linger, "linger", daemon.DefaultLinger, "`time` to keep a lock that a local client released for the next local client, which then needs no disk IO; 0 to 10ms, 0: release it immediately")
	fs.StringVar(&o.daemon.RuntimeDir, "runtime-dir", "", "`directory` of lock files (default: /run/bakery)")
	fs.StringVar(&o.daemon.StateDir, "state-dir", "", "`directory` for state that survives a reboot (default: /var/lib/bakery)")
	fs.Var((*level)(&o.logLevel), "log-level", "lowest `level` to log: debug, info, warn or error")
	flags.Choice(fs, &o.logFormat, "log-format", []string{"auto", "text", "json", "journal"}, "`format` of the log: text, json, journal, or auto: journal under systemd, else text")
	fs.BoolVar(&o.version, "version", false, "print the version")
	help := fs.BoolP("help", "h", false, "print this help")
	if err := fs.Parse(args); err != nil {
		return o, flags.Explain(fs, err)
	}
	if *help {
		o.help = fmt.Sprintf(usage, fs.FlagUsages())
		return o, nil
	}
	if o.version {
		return o, nil
	}
	o.env = map[string]bool{}
	env := map[string]string{}
	for _, pair := range environ {
		if name, v, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "BAKERYD_") {
			env[name] = v
		}
	}
	var err error
	fs.VisitAll(func(f *pflag.Flag) {
		name := variable(f.Name)
		v := env[name]
		delete(env, name)
		if v != "" && !f.Changed && f.Name != "help" && f.Name != "version" && err == nil {
			set := func() error { return f.Value.Set(v) }
			if several, ok := f.Value.(pflag.SliceValue); ok {
				set = func() error { return several.Replace(strings.Fields(v)) }
			}
			if e := set(); e != nil {
				err = fmt.Errorf("%s=%q: %s", name, v, flags.Want(f, v, e))
			}
			o.env[f.Name] = true
		}
	})
	if err != nil {
		return o, err
	}
	o.unknown = slices.Sorted(maps.Keys(env))
	return o, o.check(fs)
}

var errNoDevice = errors.New("--device is missing")

// check returns an error unless the options are valid, and completes them.
func (o *options) check(fs *pflag.FlagSet) error {
	var loopback error
	if o.listen != "" {
		loopback = server.CheckLoopback(o.listen)
	}
	fence := &o.daemon.Fence
	if fence.Command != "" && !fs.Changed("fence") && len(fence.Devices) == 0 {
		fence.Agent = "exec" // a command is of no use otherwise
	}
	switch {
	case fs.Changed("policy-file") && o.policy == "":
		return errors.New("--policy-file is empty, want a path; omit the flag for no policy")
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: bakeryd takes flags only", fs.Arg(0))
	case len(o.daemon.Devices) == 0 || slices.Contains(o.daemon.Devices, ""):
		return errNoDevice
	case o.daemon.Linger < 0 || o.daemon.Linger > daemon.MaxLinger:
		return fmt.Errorf("%s %v: want 0s to %v", o.setting("linger"), o.daemon.Linger, daemon.MaxLinger)
	case loopback != nil:
		return fmt.Errorf("%s: %w", o.setting("listen"), loopback)
	case fence.Agent == "exec" && fence.Command == "":
		return fmt.Errorf("%s exec without --fence-exec", o.setting("fence"))
	case fence.Agent == "exec" && len(fence.Devices) > 0:
		return fmt.Errorf("%s is for --fence pr", o.setting("fence-device"))
	case fence.Agent == "pr" && fence.Command != "":
		return fmt.Errorf("%s is for --fence exec", o.setting("fence-exec"))
	}
	if o.logFormat == "auto" {
		o.logFormat = "text"
		if os.Getenv("JOURNAL_STREAM") != "" {
			o.logFormat = "journal"
		}
	}
	return nil
}
