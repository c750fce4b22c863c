package sanlock

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/sanlock/area"
	"github.com/bakeryd/bakeryd/daemon/sanlock/hosts"
	"github.com/bakeryd/bakeryd/daemon/sanlock/killing"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/statefile"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// defaultIOTimeout is sanlock's, in seconds. It has no effect here but to be shown.
const defaultIOTimeout = 10

func (c *conn) addLockspace(req *wire.Request) answer {
	t, l, timeout := c.current(), req.Lockspace, req.Data
	if timeout == 0 {
		timeout = defaultIOTimeout
	}
	if t == nil {
		return failed(wire.Errno(syscall.EAGAIN))
	}
	if code := c.allowed(hosts.Lock(l)); code != wire.OK {
		return failed(code)
	}
	c.mu.Lock()
	space, code := (*registry.Space)(nil), wire.Errno(syscall.EAGAIN)
	if !t.ending {
		space, code = c.reg.BeginAdd(l, timeout)
	}
	c.mu.Unlock()
	if code != wire.OK {
		return failed(code)
	}
	join := func() answer {
		code := c.join(t, space)
		if code == wire.OK {
			code = c.present(space)
		}
		if code != wire.OK {
			c.release(space.Hold)
			c.mu.Lock()
			delete(c.reg.Spaces, l.Name)
			c.change()
			c.mu.Unlock()
			_ = c.save()
		}
		return failed(code)
	}
	if req.Flags&wire.AddAsync != 0 {
		c.tasks.Go(func() { join() })
		return answer{}
	}
	return join()
}

// present makes a lockspace usable, unless it was removed while it was added.
func (c *conn) present(space *registry.Space) wire.Code {
	c.mu.Lock()
	removed := space.State == registry.Removing
	if !removed {
		space.State = registry.Present
	}
	c.change()
	c.mu.Unlock()
	switch {
	case removed:
		return -1
	case c.save() != nil:
		return wire.Errno(syscall.EIO)
	}
	c.log.Info("lockspace of the sanlock socket joined", "lockspace", space.Name, "host_id", space.HostID, "generation", space.Hold.Token)
	return wire.OK
}

// join checks the area of a lockspace and takes the lock of the host id.
func (c *conn) join(t *term, space *registry.Space) wire.Code {
	l := space.Lockspace
	rec, err := t.areas.Read(context.Background(), c.peer(), area.Lockspace, l.Disk.Path, l.Disk.Offset, l.Flags)
	switch {
	case err != nil:
		return c.areaCode(err)
	case rec.Lockspace != l.Name:
		return wire.LeaderLockspace
	case l.HostID > hosts.Max(rec.Flags):
		return wire.AddLockspaceHostID
	}
	h, code := c.takeUnless(t, hosts.Lock(l), layout.Exclusive, nil, true)
	if code != wire.OK {
		if code == wire.AcquireIdlive || code == wire.Errno(syscall.EAGAIN) {
			return wire.HostidBusy
		}
		return code
	}
	c.mu.Lock()
	t.keep(h)
	space.Flags, space.Hold = rec.Flags, idOf(h)
	c.mu.Unlock()
	return wire.OK
}

func (c *conn) inqLockspace(req *wire.Request) answer {
	for {
		c.mu.Lock()
		code, changed := c.reg.Inquire(req.Lockspace), c.changed
		c.mu.Unlock()
		if code != wire.Errno(syscall.EINPROGRESS) || req.Flags&wire.InqWait == 0 || !c.await(context.Background(), changed) {
			return failed(code)
		}
	}
}

func (c *conn) remLockspace(req *wire.Request) answer {
	if code := c.allowed(hosts.Lock(req.Lockspace)); code != wire.OK {
		return failed(code)
	}
	c.mu.Lock()
	space, was, code := c.reg.BeginRemove(req.Lockspace, req.Flags&wire.RemUnused != 0)
	c.mu.Unlock()
	if code != wire.OK {
		return failed(code)
	}
	leave := func() { c.awaitLeft(space) }
	if was == registry.Present {
		leave = func() { c.leave(space, killing.Plan{Now: true}) }
	}
	if req.Flags&wire.RemAsync != 0 {
		c.tasks.Go(leave)
	} else {
		leave()
	}
	return answer{}
}

// awaitLeft waits until a lockspace has gone that another command adds or removes.
func (s *Server) awaitLeft(space *registry.Space) {
	for {
		s.mu.Lock()
		there, changed := s.reg.Spaces[space.Name] == space, s.changed
		s.mu.Unlock()
		if !there || !s.await(context.Background(), changed) {
			return
		}
	}
}

// leave stops the clients of a lockspace that is being removed, waits until nothing blocks it, and leaves it. Orphans
// are released before the host id is.
func (s *Server) leave(space *registry.Space, p killing.Plan) {
	t := s.current()
	stop, stopped := context.WithCancel(context.Background())
	defer stopped()
	s.tasks.Go(func() { s.stopClients(stop, space, p) })
	for said := ""; ; {
		s.mu.Lock()
		blocked, changed := s.reg.Blocked(space), s.changed
		s.mu.Unlock()
		if blocked == "" {
			break
		}
		if blocked != said {
			s.log.Warn("a lockspace of the sanlock socket cannot be left yet", "lockspace", space.Name, "waits_for", blocked)
			said = blocked
		}
		if !s.await(context.Background(), changed) {
			return
		}
	}
	s.mu.Lock()
	orphans := s.reg.BeginReleaseOrphans(registry.Key{Lockspace: space.Name})
	s.mu.Unlock()
	s.letGoAll(orphans, "its lockspace is being removed")
	if errors.Is(s.save(), statefile.ErrEnded) { // the next process goes on
		return
	}
	s.release(space.Hold)
	s.mu.Lock()
	if s.reg.Spaces[space.Name] == space {
		delete(s.reg.Spaces, space.Name)
	}
	s.change()
	s.mu.Unlock()
	_ = s.save()
	if t != nil {
		s.log.Info("lockspace of the sanlock socket left", "lockspace", space.Name)
	}
}

func (c *conn) getLockspaces(*wire.Request) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := answer{data: uint32(len(c.reg.Spaces))}
	for _, space := range c.spaces() {
		l := space.Lockspace
		l.Flags = 0
		if space.State == registry.Adding {
			l.Flags = wire.LockspaceAdding
		}
		a.body = wire.AppendLockspace(a.body, l)
	}
	return a
}

func (c *conn) setConfig(req *wire.Request) answer {
	if code := c.allowed(hosts.Prefix(req.Lockspace.Name)); code != wire.OK {
		return failed(code)
	}
	c.mu.Lock()
	code := c.reg.Configure(req.Lockspace.Name, req.Data)
	c.change()
	c.mu.Unlock()
	_ = c.save()
	return failed(code)
}

func (c *conn) getHosts(req *wire.Request) answer {
	found, code := c.hostsOf(req.Lockspace)
	a := answer{code: code, data: uint32(len(found))}
	for _, h := range found {
		a.body = wire.AppendHost(a.body, h)
	}
	return a
}

// hostsOf returns the hosts of a sanlock lockspace: one, or with host id 0 all that have been seen in it.
func (c *conn) hostsOf(l wire.Lockspace) ([]wire.Host, wire.Code) {
	c.mu.Lock()
	space := c.reg.Spaces[l.Name]
	c.mu.Unlock()
	t := c.current()
	if space == nil || space.State != registry.Present || t == nil {
		return nil, wire.Errno(syscall.ENOENT)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	in, err := t.hosts.In(ctx, l.Name)
	if err != nil {
		return nil, c.lockCode(err)
	}
	now := c.cfg.Clock.Now()
	switch {
	case l.HostID > hosts.Max(space.Flags):
		return nil, wire.OK
	case l.HostID != 0:
		return []wire.Host{in.Describe(l.HostID, space.IOTimeout, now)}, wire.OK
	}
	var held []wire.Host
	for _, id := range in.Held() {
		held = append(held, in.Describe(id, space.IOTimeout, now))
	}
	return held, wire.OK
}

const patience = 10 * time.Second // for reads of the bakery lockspace

// takeUnless takes a lock that a live holder does not have. One that may be dead is waited for, unless nowait.
func (c *conn) takeUnless(t *term, lock string, mode layout.Mode, client *registry.Client, wait bool) (*session.Own, wire.Code) {
	may := func(lock string) error { return c.cfg.May(c.caller, lock) }
	for try := 0; ; {
		_, changed := t.host.Member().Known()
		h, err := t.take(lock, mode, client, registry.Hold{}, c.caller, may)
		if err == nil {
			return h, wire.OK
		}
		if !errors.Is(err, api.ErrBusy) {
			return nil, c.lockCode(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		holders, err := t.host.LockManager().Holders(ctx, lock)
		cancel()
		if err != nil && !errors.Is(err, api.ErrNoLock) {
			return nil, c.lockCode(err)
		}
		if len(holders) == 0 && try < tries { // two hosts have asked at the same time, or it was just released
			try++
			continue
		}
		code := t.hosts.Busy(holders, c.cfg.Clock.Now())
		if code != wire.AcquireOwnedRetry || !wait {
			return nil, code
		}
		select {
		case <-changed:
		case <-t.host.Member().Lost():
			return nil, wire.Errno(syscall.ENOSPC)
		case <-c.ended:
			return nil, wire.Errno(syscall.ENOSPC)
		}
	}
}

const tries = 3 // of a lock that is busy and has no holder
