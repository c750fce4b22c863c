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
	log := newLogger(stderr, o.logFormat, o.logLevel)
	o.daemon.Logger, o.daemon.Keep = log, true
	if err := serve(ctx, o, log); err != nil {
		log.Error("bakeryd ends", "err", err)
		return exitCode(err)
	}
	return exitOK
}

func serve(ctx context.Context, o options, log *slog.Logger) error {
	// Before all else: a signal must not end the process in between.
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM)
	defer stop()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, unix.SIGINT)
	defer signal.Stop(interrupts)

	ln, err := daemon.Listen(o.socket)
	if err != nil {
		return fmt.Errorf("%w: %w", errSocket, err)
	}
	defer ln.Close()
	s := daemon.NewService(o.daemon, func(d *daemon.Daemon) {
		log.Info("serving", "device", o.daemon.Device, "host_id", d.HostID(), "socket", o.socket)
		notify(log, fmt.Sprintf("%s\nSTATUS=host %d on %s", sd.SdNotifyReady, d.HostID(), o.daemon.Device))
	})
	go func() {
		if _, ok := <-interrupts; ok {
			s.Drain()
		}
	}()
	// Served from the beginning: who asks is told that the host is still joining.
	srv := daemon.NewServer(log, s.Joined, s.Events())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	err = s.Run(ctx)
	notify(log, sd.SdNotifyStopping)
	switch {
	case errors.Is(err, daemon.ErrHandedOver):
		return nil // closed connections would release what they hold
	case errors.Is(err, daemon.ErrEvicted):
		log.Warn("bakeryd ends", "reason", err)
		err = nil
	case errors.Is(err, daemon.ErrLost):
		return err // likewise
	}
	return errors.Join(err, srv.Shutdown(), <-served)
}

// errSocket is returned when the socket cannot be served.
var errSocket = errors.New("the socket cannot be served")

func notify(log *slog.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("telling systemd failed", "err", err)
	}
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, daemon.ErrLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return exitLost
	case errors.Is(err, daemon.ErrInvalid):
		return exitUsage
	case errors.Is(err, errSocket), errors.Is(err, daemon.ErrWatchdog), errors.Is(err, daemon.ErrFenceAgent), errors.Is(err, daemon.ErrUnavailable), errors.Is(err, daemon.ErrIDTaken), errors.Is(err, lease.ErrInUse),
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
