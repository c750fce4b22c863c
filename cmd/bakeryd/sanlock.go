package main

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/policy"
	"github.com/bakeryd/bakeryd/daemon/sanlock"
	"github.com/bakeryd/bakeryd/daemon/server"
)

// sanlockGroup is the group whose members may connect to the socket of sanlock, as in its packages.
const sanlockGroup = "sanlock"

// compatibility serves the socket of sanlock; nil serves none.
type compatibility struct {
	srv *sanlock.Server
	ln  net.Listener
	log *slog.Logger
}

// listenSanlock creates the socket of --sanlock-socket, if there is one.
func listenSanlock(o options, p *policy.File, log *slog.Logger, systemd *systemd) (*compatibility, error) {
	if o.sanlock == "" {
		return nil, nil
	}
	ln, err := server.ListenFor(o.sanlock, sanlockGroup, access.GID(sanlockGroup))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSanlockSocket, err)
	}
	rules := access.WithoutPolicy()
	cfg := sanlock.Config{Log: log, Clock: clock.Boottime, Keep: systemd.keep, Drop: systemd.drop, May: func(c sanlock.Caller, lock string) error {
		if rules := rules; p != nil {
			rules.Policy = p.Current.Load()
			return rules.Decide(access.Caller{UID: c.UID, GID: c.GID, Groups: c.Groups, PID: c.Process.PID}, access.Lock, lock)
		}
		return nil
	}}
	return &compatibility{srv: sanlock.New(cfg, kept()), ln: ln, log: log}, nil
}

func (c *compatibility) begin(h *daemon.Host) {
	if c != nil {
		c.srv.Begin(h)
	}
}

func (c *compatibility) serve() {
	if c == nil {
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
	if c != nil {
		c.srv.Close()
		_ = c.ln.Close()
	}
}
