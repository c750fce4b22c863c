package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/usage"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

func defineValue(a *app, cmd *cobra.Command) {
	cmd.Long = `Read the value of a lock, or set it under the lock.

A lock has a value of up to 256 bytes, such as the address of a leader. An exclusive holder may set it, and every user
may read it. It is stored on the disk, so it outlives the hold and the host that set it, until another holder sets or
clears it.`
	cmd.Example = `  bakeryctl lock --value "$(hostname):5432" leader -- ./serve
  bakeryctl value get leader`
	usage.Group(cmd)
	get := command{"get NAME", "Print the value of a lock", oneLock, defineValueGet}
	set := command{"set TEXT|-", "Set the value of the lock that this command runs under", usage.One("TEXT", usage.Any), defineValueSet}
	cmd.AddCommand(get.create(a), set.create(a))
}

func defineValueGet(a *app, cmd *cobra.Command) {
	cmd.Long = `Print the last value of a lock, whether or not its writer is alive or holds the lock.

The bytes are printed unchanged. On a terminal a newline follows, and values with unprintable characters are quoted.
With --json the value is in base64, with the host that set it and its token.

Without --device bakeryd is asked. With --device the device is read, without joining and without bakeryd.

Exit codes:
  1    the lock has no value, or there is no such lock
  64   the command line is wrong
  66   the device, or a record that may have the value, cannot be read
  69   bakeryd is unreachable`
	cmd.Example = `  bakeryctl value get leader
  psql -h "$(bakeryctl value get leader)"
  bakeryctl value get leader --json | jq -r .host_name
  bakeryctl value get leader --device /dev/mapper/locks`
	cmd.ValidArgsFunction = a.bakeryd().Lock

	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		var v locks.Value
		if cmd.Flags().Changed("device") {
			v, err = valueOfDevice(cmd.Context(), a.devices, args[0])
		} else {
			v, err = a.valueOfDaemon(cmd.Context(), args[0])
		}
		if err != nil {
			return err
		}
		switch {
		case a.json:
			return a.judge(len(v.Value) > 0, v, nil)
		case len(v.Value) == 0:
			return &cli.Failure{Code: cli.ExitConflict, Err: fmt.Errorf("lock %q has no value", args[0]),
				Hint: "a holder sets one: bakeryctl lock --value TEXT, or bakeryctl value set"}
		}
		return writeValue(a.stdout, string(v.Value))
	}
	cmd.Flags().StringArrayVar(&a.devices, "device", nil, "read the lockspace at `PATH` instead of asking bakeryd; repeated for several disks")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

func writeValue(w io.Writer, text string) error {
	if term.Is(w) {
		text = showable(text) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// showable quotes text with unprintable or control characters.
func showable(text string) string {
	strange := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	text = strings.TrimSuffix(text, "\n")
	if !utf8.ValidString(text) || strings.ContainsFunc(text, strange) {
		return fmt.Sprintf("%q", text)
	}
	return text
}

func (a *app) valueOfDaemon(ctx context.Context, name string) (locks.Value, error) {
	var v client.Value
	err := call.Wait(ctx, a.socket, func(ctx context.Context) (err error) {
		v, err = client.New(a.socket).Value(ctx, name)
		return err
	})
	if err != nil {
		return locks.Value{}, call.OrDevice(call.Failure(err))
	}
	return locks.Value{Name: name, Value: v.Value, Token: layout.Ticket(v.Token), Host: v.Host, HostName: v.HostName}, nil
}

func valueOfDevice(ctx context.Context, paths []string, name string) (locks.Value, error) {
	snapshot, err := ondevice.Read(ctx, paths, lockspace.Inspect)
	if err != nil {
		return locks.Value{}, err
	}
	v, err := locks.SnapshotValue(snapshot, name)
	switch {
	case errors.Is(err, api.ErrNoLock):
		return v, &cli.Failure{Code: cli.ExitConflict, Err: err, Hint: "run bakeryctl status --device " + strings.Join(paths, " --device ") + " to list the locks"}
	case err != nil:
		return v, &cli.Failure{Code: cli.ExitNoDevice, Err: err, Hint: "run bakeryctl dump " + strings.Join(paths, " ") + " to find the unreadable record"}
	}
	return v, nil
}

func defineValueSet(a *app, cmd *cobra.Command) {
	cmd.Long = `Set the value of the lock that this command runs under to TEXT or, with -, to standard input: up to 256 bytes. An
empty value clears it. The value is on the disk when value set exits.

value set is for the command of bakeryctl lock. It finds the lock by BAKERY_SESSION, BAKERY_TOKEN and BAKERY_SOCKET.
The lock must be held exclusively.

Exit codes:
  64   the command line is wrong, this does not run under a lock of bakeryd, or the lock is shared
  69   bakeryd is unreachable
  75   the lock is not held any more
  77   permission denied: the lock is held by another user`
	cmd.Example = `  bakeryctl lock leader -- \
    sh -c './start && bakeryctl value set "$(hostname):5432" && ./serve'
  bakeryctl lock journal -- sh -c 'tail -1 log | bakeryctl value set -'
  bakeryctl lock leader -- bakeryctl value set ''`
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		value := []byte(args[0])
		if args[0] == "-" {
			if value, err = io.ReadAll(io.LimitReader(a.stdin, layout.MaxValue+1)); err != nil {
				return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("read the value from standard input: %w", err)}
			}
		}
		if len(value) > layout.MaxValue { // of standard input one byte more was read
			return cli.Usage("value set", "the value has more than %d bytes", layout.MaxValue)
		}
		return a.inside(cmd.Context(), func(ctx context.Context, hold *client.Access) error { return hold.SetValue(ctx, value) })
	}
}

// insideTimeout is the timeout for bakeryd, which may be restarting.
const insideTimeout = 30 * time.Second

const hintInside = "run it with bakeryctl lock NAME -- COMMAND, without --device"

// inside calls change with the hold that this command runs under.
func (a *app) inside(ctx context.Context, change func(context.Context, *client.Access) error) error {
	session, text := os.Getenv(supervise.EnvSession), os.Getenv(supervise.EnvToken)
	if session == "" || text == "" {
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("find the lock of this command: %s and %s are not set", supervise.EnvSession, supervise.EnvToken),
			Hint: hintInside}
	}
	var token client.Token
	if err := token.UnmarshalText([]byte(text)); err != nil {
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", supervise.EnvToken, err), Hint: hintInside}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, insideTimeout, fmt.Errorf("%w within %v", client.ErrNoAnswer, insideTimeout))
	defer cancel()
	err := call.Wait(ctx, a.socket, func(ctx context.Context) error { return change(ctx, client.New(a.socket).Access(session, token)) })
	if err != nil {
		return call.Failure(err)
	}
	return nil
}
