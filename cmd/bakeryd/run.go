package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lease"
)

// The exit codes, as in sysexits(3).
const (
	exitOK          = 0
	exitUsage       = 64
	exitNoDevice    = 66
	exitUnavailable = 69
	exitLost        = 75
)

// run serves until a signal comes or the lease is lost, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, os.Getenv)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "bakeryd: %v\nhint: see bakeryd --help\n", err)
		return exitUsage
	case o.help != "":
		fmt.Fprint(stdout, o.help)
		return exitOK
	case o.version:
		fmt.Fprintln(stdout, "bakeryd", version())
		return exitOK
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	log := newLogger(stderr, o.logFormat, o.logLevel)
	o.daemon.Logger = log
	if err := serve(ctx, o, log); err != nil {
		log.Error("bakeryd ends", "err", err)
		return exitCode(err)
	}
	return exitOK
}

func serve(ctx context.Context, o options, log *slog.Logger) error {
	ln, err := daemon.Listen(o.socket)
	if err != nil {
		return fmt.Errorf("%w: %w", daemon.ErrUnavailable, err)
	}
	defer ln.Close()
	// Served from the beginning: who asks is told that the host is still joining.
	d := daemon.New(o.daemon)
	srv := daemon.NewServer(d)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	if err := d.Join(ctx); err != nil {
		err = errors.Join(err, srv.Shutdown(), <-served)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	log.Info("serving", "device", o.daemon.Device, "host_id", d.HostID(), "socket", o.socket)
	notify(log, fmt.Sprintf("%s\nSTATUS=host %d on %s", sd.SdNotifyReady, d.HostID(), o.daemon.Device))
	select {
	case <-ctx.Done():
		log.Info("leaving the lockspace")
	case <-d.Lost():
		err = fmt.Errorf("%w: %w", daemon.ErrLost, d.Err())
	case err = <-served:
		served <- nil
	}
	notify(log, sd.SdNotifyStopping)
	return errors.Join(err, leave(d, srv, served))
}

// leave stops the holders first, then leaves: the other way round somebody
// else could have a lock that a command still runs under. If one does not stop
// in time its connection is not closed, for that would release its lock: the
// process ends as it is, and to the others this host is one that crashed.
func leave(d *daemon.Daemon, srv *daemon.Server, served <-chan error) error {
	srv.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), d.StopTimeout())
	defer cancel()
	if err := d.Close(ctx); err != nil {
		return err
	}
	return errors.Join(srv.Shutdown(), <-served)
}

func notify(log *slog.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("telling systemd failed", "err", err)
	}
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, daemon.ErrLost), errors.Is(err, context.DeadlineExceeded):
		return exitLost
	case errors.Is(err, daemon.ErrInvalid):
		return exitUsage
	case errors.Is(err, daemon.ErrUnavailable), errors.Is(err, daemon.ErrIDTaken), errors.Is(err, lease.ErrInUse),
		errors.Is(err, lease.ErrNotLeft), errors.Is(err, lease.ErrFull):
		return exitUnavailable
	}
	return exitNoDevice
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
