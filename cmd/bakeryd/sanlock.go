package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/policy"
	"github.com/bakeryd/bakeryd/daemon/sanlock"
	"github.com/bakeryd/bakeryd/daemon/sanlock/killing"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/layout"
)

// sanlockGroup is the group whose members may connect to the socket of sanlock, as in its packages.
const sanlockGroup = "sanlock"

// compatibility serves the socket of sanlock.
type compatibility struct {
	srv *sanlock.Server
	ln  net.Listener // nil if no socket is served
	log *slog.Logger

	// reports whether something is left of a bakeryd whose lease is over; nil if nothing was
	left atomic.Pointer[func() bool]
}

// abandons has the clients of sanlock's socket stopped that a bakeryd left whose lease is over, and the watchdog not fed
// while some remain.
func (c *compatibility) abandons(cfg *daemon.Config) {
	cfg.AbandonSuffix = sanlock.StateSuffix
	cfg.Abandon = func(ctx context.Context, dir string, uuid layout.UUID, host int) error {
		left, err := killing.Abandon(ctx, c.log, sanlock.StatePath(dir, uuid, host))
		if left != nil {
			c.left.Store(&left)
		}
		return err
	}
	cfg.Safe = func() bool {
		left := c.left.Load()
		return (left == nil || !(*left)()) && !c.srv.Lost()
	}
}

// listenSanlock creates the socket of --sanlock-socket, if there is one.
func listenSanlock(o options, p *policy.File, log *slog.Logger, systemd *systemd) (c *compatibility, err error) {
	c = &compatibility{log: log}
	if o.sanlock != "" {
		if c.ln, err = server.ListenFor(o.sanlock, sanlockGroup, access.GID(sanlockGroup)); err != nil {
			return nil, fmt.Errorf("%w: %w", errSanlockSocket, err)
		}
	}
	rules := access.WithoutPolicy()
	cfg := sanlock.Config{Log: log, Clock: clock.Boottime, May: func(c sanlock.Caller, lock string) error {
		if rules := rules; p != nil {
			rules.Policy = p.Current.Load()
			return rules.Decide(access.Caller{UID: c.UID, GID: c.GID, Groups: c.Groups, PID: c.Process.PID}, access.Lock, lock)
		}
		return nil
	}}
	if systemd.notified() {
		cfg.Keep, cfg.Drop = systemd.keep, systemd.drop
	}
	if c.ln != nil && o.daemon.Watchdog == "" {
		log.Warn("nothing stops the clients of the sanlock socket while bakeryd does not run: set --watchdog")
	}
	c.srv = sanlock.New(cfg, kept())
	return c, nil
}

// begin begins a term. Without a socket it does so if the previous process had one, and clients have something: their
// holds must not end with the setting.
func (c *compatibility) begin(h *daemon.Host) {
	if c.ln == nil {
		if _, err := os.Stat(sanlock.StatePath(h.RuntimeDir(), h.Superblock().UUID, h.HostID())); err != nil {
			return
		}
		c.log.Error("clients of sanlock have resources, and --sanlock-socket is not set: they cannot release them", "remedy", "set it again, and restart bakeryd")
	}
	c.srv.Begin(h)
	c.left.Store(nil)
}

func (c *compatibility) serve() {
	if c.ln == nil {
		return
	}
	c.log.Info("serving clients of sanlock", "socket", c.ln.Addr().String())
	go func() {
		if err := c.srv.Serve(c.ln); err != nil {
			c.log.Error("serving the sanlock socket failed: its clients must be restarted after bakeryd is", "err", err)
		}
	}()
}

func (c *compatibility) close() {
	c.srv.Close()
	if c.ln != nil {
		_ = c.ln.Close()
	}
}
