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
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/metrics"
	"github.com/bakeryd/bakeryd/daemon/policy"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/server"
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
	o, err := parse(args, os.Environ())
	switch {
	case err != nil:
		fmt.Fprint(stderr, wrongSettings(err))
		return exitUsage
	case o.help != "":
		fmt.Fprint(stdout, o.help)
		return exitOK
	case o.version:
		fmt.Fprintln(stdout, "bakeryd", version())
		return exitOK
	}
	log := newLogger(stderr, o.logFormat, o.logLevel)
	for _, name := range o.unknown { // no error: another version may know it
		log.Warn("unknown variable ignored: bakeryd --help lists the flags", "variable", name)
	}
	if o.daemon.Fence.Command != "" {
		warnOfSettings("/etc/bakery", log)
	}
	o.daemon.Logger, o.daemon.Keep = log, true
	if err := serve(ctx, o, log); err != nil {
		attrs := []any{"err", err}
		if remedy := o.remedy(err); remedy != "" {
			attrs = append(attrs, "remedy", remedy)
		}
		log.Error("bakeryd ends", attrs...)
		return exitCode(err)
	}
	return exitOK
}

func serve(ctx context.Context, o options, log *slog.Logger) error {
	// First of all: from here on a signal does not end the process.
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM)
	defer stop()
	interrupted, stopInterrupts := signal.NotifyContext(context.Background(), unix.SIGINT)
	defer stopInterrupts()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP)
	defer close(hangups)
	defer signal.Stop(hangups)

	if err := fdlimit.CheckLimits(); err != nil {
		return err
	}
	systemd, err := newSystemd(log, &o.daemon)
	if err != nil {
		return err
	}
	defer systemd.end()
	lockMemory(log)
	ln, err := server.Listen(o.socket)
	if err != nil {
		return fmt.Errorf("%w: %w", errSocket, err)
	}
	defer ln.Close()
	wait := &reporter{log: log, tell: systemd.tell, joining: "joining the lockspace on " + o.daemon.DeviceNames(), served: make(chan term)}
	systemd.tell("STATUS=" + wait.joining)
	policy := openPolicy(o.policy, log)
	compat, err := listenSanlock(o, policy, log, systemd)
	if err != nil {
		return err
	}
	compat.abandons(&o.daemon)
	s := daemon.NewService(o.daemon, func(d *daemon.Host) {
		compat.begin(d)
		log.Info("serving", "device", o.daemon.DeviceNames(), "host", d.HostID(), "socket", o.socket)
		wait.served <- term{fmt.Sprintf("%s\nSTATUS=host %d on %s", sd.SdNotifyReady, d.HostID(), o.daemon.DeviceNames()), d.Lost()}
	})
	wait.waiting = s.Waiting
	stopped := make(chan struct{})
	var reports sync.WaitGroup
	reports.Go(func() { wait.run(stopped) })
	defer context.AfterFunc(interrupted, s.Drain)()
	// Serve from the beginning: clients learn that the host is still joining.
	srv := server.New(server.Config{Host: s.Serving, Last: s.Last, Log: log, Events: s.Events(), Tally: s.Tally(), Metrics: metrics.Handler(version(), s, validity(policy)), Policy: policy})
	defer srv.FlushRefusals()
	go reload(hangups, policy, log)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	compat.serve()
	if o.listen != "" {
		looks, over := context.WithCancel(context.Background())
		var looking sync.WaitGroup
		looking.Go(func() { serveLooks(looks, srv, o.listen, log) })
		defer looking.Wait()
		defer over()
	}
	err = s.Run(ctx)
	close(stopped)
	reports.Wait()
	systemd.tell(sd.SdNotifyStopping)
	switch {
	case errors.Is(err, daemon.ErrHandedOver):
		compat.close() // its connections stay, if systemd keeps them
		return nil     // closing connections would release their holds
	case errors.Is(err, daemon.ErrEvicted):
		log.Warn("bakeryd ends", "reason", err)
		err = nil
	case errors.Is(err, api.ErrLeaseLost):
		return err // as above
	}
	compat.close()
	return errors.Join(err, srv.Shutdown(), <-served)
}

// openPolicy opens the policy file, if one is set. An invalid one must not keep bakeryd from
// serving locks.
func openPolicy(path string, log *slog.Logger) *policy.File {
	if path == "" {
		return nil
	}
	p, err := policy.Open(path, log)
	if err != nil {
		p.Complain(err)
	}
	return p
}

// validity returns the function that reports whether a policy file is valid; nil without one.
func validity(p *policy.File) func() bool {
	if p == nil {
		return nil
	}
	return p.Valid
}

// reload reloads the policy on each hangup, until the channel is closed.
func reload(hangups <-chan os.Signal, policy *policy.File, log *slog.Logger) {
	for range hangups {
		if policy == nil {
			log.Info("SIGHUP ignored: there is no --policy-file")
		} else {
			policy.Reload()
		}
	}
}

// listenAgain is the pause before the next attempt to listen.
const listenAgain = 2 * time.Second

// serveLooks serves read-only requests on an address, and retries until it can listen: any user of
// this machine may occupy the address, and that must not keep bakeryd from serving locks.
func serveLooks(ctx context.Context, srv *server.Server, address string, log *slog.Logger) {
	for told := false; ctx.Err() == nil; {
		ln, err := server.ListenLoopback(address)
		if err == nil {
			log.Info("serving read-only requests", "address", ln.Addr().String())
			stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
			err = srv.ServeLooks(ln)
			if stop() && err == nil {
				return // it was shut down
			}
			told = false
		}
		if !told && ctx.Err() == nil {
			log.Error("listening on the address of --listen failed, retrying", "err", err)
			told = true
		}
		_ = retry.Pause(ctx, listenAgain)
	}
}

// errSanlockSocket is returned when the socket of --sanlock-socket cannot be served.
var errSanlockSocket = errors.New("the sanlock socket cannot be served")

// errSocket is returned when the socket cannot be served.
var errSocket = errors.New("the socket cannot be served")

func exitCode(err error) int {
	switch {
	case errors.Is(err, api.ErrLeaseLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return exitLost
	case errors.Is(err, api.ErrInvalid):
		return exitUsage
	case errors.Is(err, errSocket), errors.Is(err, errSanlockSocket), errors.Is(err, fdlimit.ErrLimits), errors.Is(err, daemon.ErrWatchdog), errors.Is(err, membership.ErrFenceAgent), errors.Is(err, api.ErrUnavailable), errors.Is(err, hostid.ErrTaken), errors.Is(err, lease.ErrInUse),
		errors.Is(err, lease.ErrNotLeft), errors.Is(err, lease.ErrFull):
		return exitUnavailable
	}
	return exitNoDevice
}

// release is the version set by packages; empty: the module's.
var release string

func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
