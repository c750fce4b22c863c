package sanlock

import (
	"context"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/sanlock/killing"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
)

// fail ends all lockspaces of a term by the deadline: other hosts may have their resources then.
func (s *Server) fail(t *term, deadline time.Duration, why string) {
	s.mu.Lock()
	t.ending = true
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
	p := killing.Until(deadline, s.cfg.Clock.Now())
	for _, space := range leaving { // first: writing the state or the log may block
		s.tasks.Go(func() { s.leave(space, p) })
	}
	_ = s.save()
	s.log.Error("stopping the clients of the sanlock socket", "reason", why, "lockspaces", len(leaving),
		"within", max(0, deadline-s.cfg.Clock.Now()).Round(time.Millisecond))
}

// stopClients stops the clients that have resources in a lockspace, until ctx ends.
func (s *Server) stopClients(ctx context.Context, space *registry.Space, p killing.Plan) {
	last := map[int]killing.Action{}
	for ctx.Err() == nil {
		now := s.cfg.Clock.Now()
		for _, c := range s.using(space) {
			before, again := last[c.ID]
			if c.KillPath != "" && !p.Now && !again {
				killing.Do(s.log, &c, space.Name, killing.Killpath, false)
			}
			a := p.Next(&c, now)
			if a != killing.Killpath {
				killing.Do(s.log, &c, space.Name, a, again && a == before)
			}
			last[c.ID] = a
		}
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		pause := killing.Again
		for _, at := range []time.Duration{p.Term, p.Kill} {
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
