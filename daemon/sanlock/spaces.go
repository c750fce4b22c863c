package sanlock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/sanlock/area"
	"github.com/bakeryd/bakeryd/daemon/sanlock/killing"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// hostPrefix begins the names of the locks of the host ids of a lockspace.
func hostPrefix(lockspace string) string { return name(lockspace, "host") + "/" }

func hostLock(l wire.Lockspace) string {
	return hostPrefix(l.Name) + strconv.FormatUint(l.HostID, 10)
}

// defaultIOTimeout is sanlock's, in seconds. It has no effect here but to be shown.
const defaultIOTimeout = 10

// maxHostID is the largest host id of a sanlock lockspace.
const maxHostID = 2000

func (c *conn) addLockspace(req *wire.Request) answer {
	t, l, timeout := c.current(), req.Lockspace, req.Data
	if timeout == 0 {
		timeout = defaultIOTimeout
	}
	if t == nil {
		return failed(wire.Errno(syscall.EAGAIN))
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
	case l.HostID > maxHosts(rec.Flags):
		return wire.AddLockspaceHostID
	}
	h, code := c.takeUnless(t, hostLock(l), layout.Exclusive, nil, true)
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

// maxHosts returns how many host ids an area has, as sanlock counts them.
func maxHosts(flags uint32) uint64 {
	if flags&wire.Sector4K == 0 {
		return maxHostID
	}
	switch {
	case flags&wire.Align1M != 0:
		return 250
	case flags&wire.Align2M != 0:
		return 500
	case flags&wire.Align4M != 0:
		return 1000
	}
	return maxHostID
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
	if code := c.allowed(hostLock(req.Lockspace)); code != wire.OK {
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
	_ = s.save()
	for _, res := range orphans {
		s.letGo(res, "its lockspace is being removed")
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
	if code := c.allowed(hostPrefix(req.Lockspace.Name)); code != wire.OK {
		return failed(code)
	}
	c.mu.Lock()
	code := c.reg.Configure(req.Lockspace.Name, req.Data)
	c.change()
	c.mu.Unlock()
	_ = c.save()
	return failed(code)
}

// hostKey is a host id of a sanlock lockspace.
type hostKey struct {
	lockspace string
	id        uint64
}

// seen is the host of the bakery lockspace that had a host id the last time, and its generation then.
type seen struct {
	host        int
	incarnation uint64
	generation  layout.Ticket
}

// hostIDs returns which hosts of the bakery lockspace are or were in a sanlock lockspace, by the id there. held
// has those whose hold stands on the disk.
func (t *term) hostIDs(ctx context.Context, s *Server, lockspace string) (all map[uint64]seen, held map[uint64]bool, err error) {
	listing, err := t.host.LockManager().Locks(ctx)
	if err != nil {
		return nil, nil, err
	}
	all, held = map[uint64]seen{}, map[uint64]bool{}
	hosts, _ := t.host.Member().Known()
	for _, l := range listing.Locks {
		number, ok := strings.CutPrefix(l.Name, hostPrefix(lockspace))
		id, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			continue
		}
		key := hostKey{lockspace, id}
		holders, err := t.host.LockManager().Holders(ctx, l.Name)
		if err != nil && !errors.Is(err, api.ErrNoLock) {
			return nil, nil, err
		}
		s.mu.Lock()
		if len(holders) > 0 {
			h := holders[0]
			t.seen[key] = seen{host: h.Host, incarnation: hosts[h.Host-1].Incarnation, generation: h.Token}
			held[id] = true
		}
		if was, ok := t.seen[key]; ok {
			all[id] = was
		}
		s.mu.Unlock()
	}
	return all, held, nil
}

func (c *conn) getHosts(req *wire.Request) answer {
	hosts, code := c.hostsOf(req.Lockspace)
	a := answer{code: code, data: uint32(len(hosts))}
	for _, h := range hosts {
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
	all, held, err := t.hostIDs(ctx, c.Server, l.Name)
	if err != nil {
		return nil, c.lockCode(err)
	}
	var hosts []wire.Host
	if l.HostID > maxHosts(space.Flags) {
		return nil, wire.OK
	}
	if l.HostID != 0 {
		h := wire.Host{ID: l.HostID, Flags: wire.HostFree}
		if was, ok := all[l.HostID]; ok {
			h = t.describe(l.HostID, was, held[l.HostID], space.IOTimeout, c.cfg.Clock.Now())
		}
		return append(hosts, h), wire.OK
	}
	for _, id := range sortedIDs(all) {
		if !held[id] { // it has left
			continue
		}
		hosts = append(hosts, t.describe(id, all[id], held[id], space.IOTimeout, c.cfg.Clock.Now()))
	}
	return hosts, wire.OK
}

// patience limits reads of the bakery lockspace for an answer.
const patience = 10 * time.Second

// describe returns what sanlock says of a host: its state, and when its lease was renewed the last time as far as
// this host has seen it.
func (t *term) describe(id uint64, was seen, held bool, ioTimeout uint32, now time.Duration) wire.Host {
	known, _ := t.host.Member().Known()
	h := known[was.host-1]
	w := wire.Host{ID: id, Generation: uint64(was.generation), IOTimeout: ioTimeout}
	since := h.Since
	if was.host == t.host.Member().ID() {
		h.Readable, h.Gone, h.Incarnation, since = true, false, was.incarnation, now
	}
	switch w.Flags = t.state(h, was, held, now); w.Flags {
	case wire.HostFree:
	default:
		w.Timestamp = max(1, uint64(since/time.Second))
	}
	return w
}

func (t *term) state(h lease.Host, was seen, held bool, now time.Duration) uint32 {
	gone := h.Gone || h.Incarnation != was.incarnation
	switch {
	case gone && h.State != layout.StateLeft:
		return wire.HostDead
	case gone || !held:
		return wire.HostFree
	case !h.Readable:
		return wire.HostUnknown
	case now-h.Since > t.host.Superblock().Lease && was.host != t.host.Member().ID():
		return wire.HostFail
	}
	return wire.HostLive
}

// silent reports whether a host of the bakery lockspace has not renewed its lease for so long that it may be dead.
func (t *term) silent(host int, now time.Duration) bool {
	if host == t.host.Member().ID() {
		return false
	}
	known, _ := t.host.Member().Known()
	h := known[host-1]
	lease := t.host.Superblock().Lease
	return h.Gone || !h.Readable || now-h.Since > lease/2
}

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
		code := t.busyCode(holders, mode, c.cfg.Clock.Now())
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

// tries is how often a lock is requested again that is busy and has no holder.
const tries = 3

// busyCode returns why a resource is not free.
func (t *term) busyCode(holders []locks.Asked, want layout.Mode, now time.Duration) wire.Code {
	if len(holders) == 0 {
		return wire.AcquireOther
	}
	exclusive, silent := false, true
	for _, h := range holders {
		exclusive = exclusive || h.Mode == layout.Exclusive
		silent = silent && t.silent(h.Host, now)
	}
	switch {
	case silent:
		return wire.AcquireOwnedRetry
	case exclusive:
		return wire.AcquireIdlive
	}
	return wire.Errno(syscall.EAGAIN) // readers
}
