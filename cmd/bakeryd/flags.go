package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/server"
)

const usage = `bakeryd joins this host to the lockspace on a shared device and serves its locks.

Usage:
  bakeryd --device DEV [--host-id N|auto] [flags]

Every flag can also be set in the environment: --host-id as BAKERYD_HOST_ID,
and so on; the command line has priority.

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
	policy    string // path of the policy file; empty if none
	listen    string // empty: no network
	logLevel  slog.Level
	logFormat string
	version   bool
	help      string // text to print instead of running

	unknown []string // unknown variables named BAKERYD_*
}

var errUsage = errors.New("wrong command line")

func parse(args, environ []string) (options, error) {
	var o options
	var hostID, level string
	fs := pflag.NewFlagSet("bakeryd", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.StringVar(&o.daemon.Device, "device", "", "block `device` or file with the lockspace")
	fs.StringVar(&hostID, "host-id", "auto", "this host's `id`, 1 to the lockspace's number of hosts, or auto")
	fs.StringVar(&o.daemon.Name, "name", "", "this host's `name`, shown in listings (default: the hostname)")
	fs.StringVar(&o.socket, "socket", "/run/bakery/bakeryd.sock", "`path` of the Unix socket to serve")
	fs.StringVar(&o.policy, "policy-file", "", "`path` of a file that says which users may take which locks (default: every user that can open the socket may take all)")
	fs.StringVar(&o.listen, "listen", "", "loopback `address` and port to serve the status page and metrics on, such as 127.0.0.1:9415 (default: none)")
	fs.StringVar(&o.daemon.Watchdog, "watchdog", "", "`device` that resets this host when a lost lock's command cannot be stopped, such as /dev/watchdog")
	fs.StringVar(&o.daemon.Fence.Agent, "fence", "pr", "`agent` that fences dead hosts if the lockspace's policy is fence: pr or exec")
	fs.StringVar(&o.daemon.Fence.Command, "fence-exec", "", "shell `command` of agent exec: fences $BAKERY_FENCE_HOST; exit 0 confirms")
	fs.StringArrayVar(&o.daemon.Fence.Devices, "fence-device", nil, "agent pr: another `device` to fence dead hosts from; may be repeated")
	fs.IntVar(&o.daemon.Handoff, "handoff", 8, "`times` a lock may pass between local clients while another host waits")
	fs.StringVar(&o.daemon.RuntimeDir, "runtime-dir", "", "`directory` of lock files (default: /run/bakery)")
	fs.StringVar(&o.daemon.StateDir, "state-dir", "", "`directory` for state that survives a reboot (default: /var/lib/bakery)")
	fs.StringVar(&level, "log-level", "info", "lowest `level` to log: debug, info, warn or error")
	fs.StringVar(&o.logFormat, "log-format", "auto", "`format` of the log: text, json, journal, or auto: journal under systemd, else text")
	fs.BoolVar(&o.version, "version", false, "print the version")
	help := fs.BoolP("help", "h", false, "print this help")
	if err := fs.Parse(args); err != nil {
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	if *help {
		o.help = fmt.Sprintf(usage, fs.FlagUsages())
		return o, nil
	}
	env := map[string]string{}
	for _, pair := range environ {
		if name, v, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "BAKERYD_") {
			env[name] = v
		}
	}
	var err error
	fs.VisitAll(func(f *pflag.Flag) {
		name := "BAKERYD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v := env[name]
		delete(env, name)
		if v != "" && !f.Changed && f.Name != "help" && f.Name != "version" && err == nil {
			if e := f.Value.Set(v); e != nil {
				err = fmt.Errorf("%w: %s=%q: %w", errUsage, name, v, e)
			}
		}
	})
	if err != nil || o.version {
		return o, err
	}
	o.unknown = slices.Sorted(maps.Keys(env))
	if fs.Changed("policy-file") && o.policy == "" {
		return o, fmt.Errorf("%w: --policy-file is empty, want a path; omit the flag for no policy", errUsage)
	}
	return o, o.check(fs.Args(), hostID, level)
}

func (o *options) check(rest []string, hostID, level string) error {
	if len(rest) > 0 {
		return fmt.Errorf("%w: unexpected argument %q", errUsage, rest[0])
	}
	if o.daemon.Device == "" {
		return fmt.Errorf("%w: --device is missing", errUsage)
	}
	if hostID != "auto" {
		n, err := strconv.Atoi(hostID)
		if err != nil || n < 1 {
			return fmt.Errorf("%w: --host-id %q, want a number from 1, or auto", errUsage, hostID)
		}
		o.daemon.HostID = n
	}
	if o.daemon.Handoff < 1 {
		return fmt.Errorf("%w: --handoff %d, want 1 or more", errUsage, o.daemon.Handoff)
	}
	if o.listen != "" {
		if err := server.CheckLoopback(o.listen); err != nil {
			return fmt.Errorf("%w: --listen: %w", errUsage, err)
		}
	}
	if err := o.checkFence(); err != nil {
		return err
	}
	if err := o.logLevel.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("%w: --log-level %q, want debug, info, warn or error", errUsage, level)
	}
	switch o.logFormat {
	case "auto":
		o.logFormat = "text"
		if os.Getenv("JOURNAL_STREAM") != "" {
			o.logFormat = "journal"
		}
	case "text", "json", "journal":
	default:
		return fmt.Errorf("%w: --log-format %q, want text, json, journal or auto", errUsage, o.logFormat)
	}
	return nil
}

func (o *options) checkFence() error {
	f := &o.daemon.Fence
	if f.Command != "" && f.Agent == "pr" && len(f.Devices) == 0 {
		f.Agent = "exec" // a command is of no use otherwise
	}
	switch {
	case f.Agent != "pr" && f.Agent != "exec":
		return fmt.Errorf("%w: --fence %q, want pr or exec", errUsage, f.Agent)
	case f.Agent == "exec" && f.Command == "":
		return fmt.Errorf("%w: --fence exec without --fence-exec", errUsage)
	case f.Agent == "exec" && len(f.Devices) > 0:
		return fmt.Errorf("%w: --fence-device is for --fence pr", errUsage)
	case f.Agent == "pr" && f.Command != "":
		return fmt.Errorf("%w: --fence-exec is for --fence exec", errUsage)
	}
	return nil
}
