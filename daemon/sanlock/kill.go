package sanlock

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// plan is when the clients of a lockspace are stopped, on the clock of the server: first their killpath runs, or they
// get SIGTERM if they have none.
type plan struct {
	term time.Duration // those with a killpath get SIGTERM
	kill time.Duration // all get SIGKILL

	now bool // without a killpath
}

// killNow is the plan for a lockspace that a client removes: sanlock sends SIGKILL at once.
func (s *Server) killNow() plan { return plan{now: true} }

// untilDeadline is the plan for the time that is left of a lease: half of it is for the killpath, the rest for
// SIGTERM.
func (s *Server) untilDeadline(deadline time.Duration) plan {
	now := s.cfg.Clock.Now()
	return plan{term: now + (deadline-now)/2, kill: deadline}
}

// action is what is done to a client.
type action uint8

const (
	runKillpath action = iota
	terminate
	kill
)

// next returns what is done to a client at the time now. A killpath runs once, also if the time for it is over: a
// client that must not get SIGKILL may end what it protects by that.
func (p plan) next(c *registry.Client, now time.Duration) action {
	a := terminate
	switch {
	case now >= p.kill:
		a = kill
	case now < p.term && c.KillPath != "":
		return runKillpath
	}
	switch {
	case a == kill && c.Restrict&wire.RestrictSigkill != 0:
		return terminate
	case a == terminate && c.Restrict&wire.RestrictSigterm != 0:
		return kill
	}
	return a
}

// fail ends all lockspaces of a term by the deadline: other hosts may have their resources then.
func (s *Server) fail(t *term, deadline time.Duration, why string) {
	s.mu.Lock()
	var leaving []*registry.Space
	for _, space := range s.spaces() {
		if space.State == registry.Present {
			leaving = append(leaving, space)
		}
		space.State, space.Dead = registry.Removing, true
	}
	s.change()
	s.mu.Unlock()
	if len(leaving) == 0 {
		return
	}
	s.log.Error("stopping the clients of the sanlock socket", "reason", why, "lockspaces", len(leaving),
		"within", max(0, deadline-s.cfg.Clock.Now()).Round(time.Millisecond))
	s.save()
	p := s.untilDeadline(deadline)
	for _, space := range leaving {
		s.tasks.Go(func() { s.leave(space, p) })
	}
}

// again is the pause after which a client is signalled again, as sanlock's.
const again = time.Second

// stopClients stops the clients that have resources in a lockspace, until ctx ends.
func (s *Server) stopClients(ctx context.Context, space *registry.Space, p plan) {
	ran := map[int]bool{}
	for ctx.Err() == nil {
		now := s.cfg.Clock.Now()
		for _, c := range s.using(space) {
			if c.KillPath != "" && !p.now && !ran[c.ID] {
				s.stop(c, space.Name, runKillpath)
			}
			ran[c.ID] = true
			if a := p.next(&c, now); a != runKillpath {
				s.stop(c, space.Name, a)
			}
		}
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		pause := again
		for _, at := range []time.Duration{p.term, p.kill} {
			if at > now {
				pause = min(pause, at-now)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case <-changed:
			time.Sleep(pause / 20) // many may change at the same time
		}
	}
}

// using returns copies of the clients that have resources in a lockspace. From then on these acquire nothing until
// they have released all. It returns none once the lockspace is left: another one may have its name by then.
func (s *Server) using(space *registry.Space) (found []registry.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reg.Spaces[space.Name] != space {
		return nil
	}
	for _, res := range s.reg.In(space.Name) {
		for _, id := range res.Users {
			c := s.reg.Clients[id]
			if c == nil || slices.ContainsFunc(found, func(f registry.Client) bool { return f.ID == id }) {
				continue
			}
			c.Killing = true
			found = append(found, *c)
		}
	}
	return found
}

// stop does one thing to stop a client.
func (s *Server) stop(c registry.Client, lockspace string, a action) {
	attrs := []any{"lockspace", lockspace, "pid", c.Process.PID, "client", c.Name}
	if c.UID != 0 && a != runKillpath {
		if same, err := c.Process.RunsAs(c.UID); err != nil || !same {
			return // it has ended, or was never what connected
		}
	}
	var err error
	switch a {
	case runKillpath:
		s.log.Warn("running the killpath of a client of the sanlock socket", append(attrs, "path", c.KillPath, "args", c.KillArgs)...)
		err = s.runKillpath(c)
	case terminate:
		s.log.Warn("stopping a client of the sanlock socket with SIGTERM", attrs...)
		err = c.Process.Signal(syscall.SIGTERM)
	case kill:
		s.log.Warn("stopping a client of the sanlock socket with SIGKILL", attrs...)
		err = c.Process.Signal(syscall.SIGKILL)
	}
	if err != nil {
		s.log.Warn("stopping a client of the sanlock socket failed", append(attrs, "err", err)...)
	}
}

// runKillpath starts a program that a client has named, with the rights of that client.
func (s *Server) runKillpath(c registry.Client) error {
	cmd := exec.Command(c.KillPath, killArgs(c.KillArgs)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 && c.UID != 0 {
		groups := make([]uint32, len(c.Groups))
		for i, g := range c.Groups {
			groups[i] = uint32(g)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.GID), Groups: groups}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("killpath: %w", err)
	}
	s.tasks.Go(func() {
		if err := cmd.Wait(); err != nil {
			s.log.Warn("the killpath of a client of the sanlock socket failed", "path", c.KillPath, "pid", c.Process.PID, "err", err)
		}
	})
	return nil
}

// killArgs splits the arguments of a killpath as sanlock does: at spaces, unless a backslash is before one.
func killArgs(text string) (args []string) {
	var arg strings.Builder
	end := func() {
		if arg.Len() > 0 {
			args = append(args, arg.String())
			arg.Reset()
		}
	}
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '\\' && i+1 < len(text) && (text[i+1] == '\\' || isSpace(text[i+1])):
			i++
			arg.WriteByte(text[i])
		case b == '\\' || b < ' ' && !isSpace(b) || b >= 0x7f:
			end()
			return args // sanlock reads no further
		case isSpace(b):
			end()
		default:
			arg.WriteByte(b)
		}
	}
	end()
	return args
}

func isSpace(b byte) bool { return strings.IndexByte(" \t\n\v\f\r", b) >= 0 }
