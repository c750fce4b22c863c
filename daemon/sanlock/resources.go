package sanlock

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/sanlock/area"
	"github.com/bakeryd/bakeryd/daemon/sanlock/hosts"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/statefile"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/daemon/session"
)

// acquire acquires all resources of a request, or none.
func (c *conn) acquire(req *wire.Request) answer {
	client, code := c.begin(req)
	if code != wire.OK {
		return failed(code)
	}
	if req.Owner != "" {
		c.mu.Lock()
		client.Name = strings.ToValidUTF8(req.Owner, "?")
		c.mu.Unlock()
	}
	var got []grant
	for _, want := range req.Resources {
		if code = c.allowed(hosts.Name(want.Lockspace, want.Name)); code != wire.OK {
			break
		}
		var g grant
		if g, code = c.acquireOne(client, want, req.Flags); code != wire.OK {
			break
		}
		got = append(got, g)
	}
	if code == wire.OK {
		code = c.accept(client, got)
	}
	if code == wire.OK {
		c.end(client)
		switch err := c.save(); {
		case err == nil:
			return answer{}
		case errors.Is(err, statefile.ErrEnded):
			return answer{later: true}
		}
		code = wire.Errno(syscall.EIO) // the next process would not know of it
	}
	for _, g := range got {
		c.undo(client, g)
	}
	c.end(client)
	return c.settled(failed(code))
}

// grant is a resource that a client is about to have.
type grant struct {
	*registry.Resource
	hold *session.Own // nil if this host had it before
}

// accept makes resources a client's. It returns an error if the client has ended, or a lockspace is being left: then the
// clients that had to stop were chosen already.
func (s *Server) accept(client *registry.Client, got []grant) wire.Code {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range got {
		if space := s.reg.Spaces[g.Lockspace]; space == nil || space.Dead || s.term == nil {
			return wire.Errno(syscall.ENOSPC)
		}
	}
	if s.reg.Clients[client.ID] == nil {
		return wire.Errno(syscall.ENOTTY)
	}
	for _, g := range got {
		if g.hold != nil {
			s.term.keep(g.hold)
			g.Hold, g.State = idOf(g.hold), registry.Present
		}
	}
	return wire.OK
}

func (c *conn) acquireOne(client *registry.Client, want wire.Resource, flags uint32) (grant, wire.Code) {
	t := c.current()
	if t == nil {
		return grant{}, wire.Errno(syscall.ENOSPC)
	}
	c.mu.Lock()
	res, fresh, code := c.reg.BeginAcquire(client, want, flags)
	c.mu.Unlock()
	if code != wire.OK || !fresh {
		return grant{Resource: res}, code
	}
	h, code := c.obtain(t, client, res, flags)
	if code != wire.OK {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reg.Drop(res)
		c.change()
	}
	return grant{res, h}, code
}

// obtain takes the lock of a resource. The record in its area is read before, because a lock that is requested is
// created, and again under the lock: another host may have renamed the resource while it had it.
//
//	A (holds GL)                   B
//	                               reads the record: GL
//	renames the resource, releases
//	                               takes the lock of GL, which no record names any more
func (c *conn) obtain(t *term, client *registry.Client, res *registry.Resource, flags uint32) (*session.Own, wire.Code) {
	if _, code := c.record(t, res.Resource); code != wire.OK {
		return nil, code
	}
	lock := hosts.Name(res.Lockspace, res.Name)
	h, code := c.takeUnless(t, lock, mode(res.Shared), client, flags&wire.AcquireOwnerNowait == 0)
	if code != wire.OK {
		return nil, code
	}
	rec, code := c.record(t, res.Resource)
	if code == wire.OK && res.Flags&wire.ResLVER != 0 && (rec.Lver == 0 || rec.Lver != res.Lver) {
		code = wire.AcquireLver
	}
	if code == wire.OK {
		code = c.renew(t, h, res, rec)
	}
	if code == wire.OK {
		c.mu.Lock()
		res.Nonce, res.Flags = rec.Nonce, res.Flags&^sizes|rec.Flags
		c.mu.Unlock()
		if res.LVB {
			code = c.readBlock(t, res)
		}
	}
	if code != wire.OK {
		h.Leave()
		return nil, code
	}
	return h, wire.OK
}

// record returns the record in the area of a resource, if it is the record of that resource.
func (c *conn) record(t *term, res wire.Resource) (area.Record, wire.Code) {
	d := res.Disks[0]
	rec, err := t.areas.Read(context.Background(), c.peer(), area.Resource, d.Path, d.Offset, res.Flags)
	switch {
	case err != nil:
		return rec, c.areaCode(err)
	case rec.Lockspace != res.Lockspace:
		return rec, wire.LeaderLockspace
	case rec.Name != res.Name:
		return rec, wire.LeaderResource
	}
	return rec, wire.OK
}

// undo gives back what acquireOne has acquired.
func (c *conn) undo(client *registry.Client, g grant) {
	c.mu.Lock()
	undo := c.reg.Undo
	if g.hold == nil { // it may have been an orphan
		undo = c.reg.Withdraw
	}
	release := undo(client, g.Resource)
	c.mu.Unlock()
	if !release || errors.Is(c.save(), statefile.ErrEnded) {
		return
	}
	if g.hold != nil {
		g.hold.Leave()
	}
	c.letGo(g.Resource, "the request failed")
}

// letGoAll releases resources that are being removed. The state file says so before: a hold that it lists and that is
// not there any more would be lost. If bakeryd ends, the next process releases them.
func (s *Server) letGoAll(all []*registry.Resource, why string) {
	if len(all) == 0 || errors.Is(s.save(), statefile.ErrEnded) {
		return
	}
	for _, res := range all {
		s.letGo(res, why)
	}
}

// letGo releases a resource that is being removed, as the state file says.
func (s *Server) letGo(res *registry.Resource, why string) {
	s.log.Debug("releasing a resource of the sanlock socket", "resource", res.Key().String(), "reason", why)
	s.release(res.Hold)
	s.mu.Lock()
	s.reg.Drop(res)
	s.change()
	s.mu.Unlock()
}

func (c *conn) releaseOrphans(req *wire.Request) answer {
	if len(req.Resources) == 0 {
		return failed(wire.Errno(syscall.EINVAL))
	}
	want := req.Resources[0]
	code := c.allowed(hosts.Prefix(want.Lockspace))
	if want.Name != "" {
		code = c.allowed(hosts.Name(want.Lockspace, want.Name))
	}
	if code != wire.OK {
		return failed(code)
	}
	c.mu.Lock()
	found := c.reg.BeginReleaseOrphans(registry.Key{Lockspace: want.Lockspace, Name: want.Name})
	c.mu.Unlock()
	c.letGoAll(found, "a client released the orphan")
	return answer{code: wire.Code(len(found))}
}

func (c *conn) releaseCmd(req *wire.Request) answer {
	client, code := c.begin(req)
	if code != wire.OK {
		return failed(code)
	}
	a := c.releaseAs(client, req)
	c.end(client)
	return c.settled(a)
}

func (c *conn) releaseAs(client *registry.Client, req *wire.Request) (a answer) {
	if req.Flags&wire.RelOrphan != 0 {
		return c.releaseOrphans(req)
	}
	code := wire.OK
	var keys []registry.Key
	rename := ""
	switch {
	case req.Flags&wire.RelAll != 0:
		c.mu.Lock()
		for _, res := range c.reg.Of(client.ID) {
			keys = append(keys, res.Key())
		}
		c.mu.Unlock()
	case req.Flags&wire.RelRename != 0 && len(req.Resources) == 2:
		keys, rename = append(keys, keyOf(req.Resources[0])), req.Resources[1].Name
	case req.Flags&wire.RelRename != 0:
		return failed(wire.Errno(syscall.EINVAL))
	default:
		for _, r := range req.Resources {
			keys = append(keys, keyOf(r))
		}
	}
	var release []released
	for _, key := range keys {
		r, last, one := c.releaseOne(client, key, rename)
		if one != wire.OK {
			code = one
		}
		if last {
			release = append(release, r)
		}
	}
	if len(release) > 0 && errors.Is(c.save(), statefile.ErrEnded) {
		return answer{later: true}
	}
	for _, r := range release {
		c.letGo(r.Resource, "its client released it")
		if r.renamed != nil {
			c.forget(r.term, *r.renamed)
		}
	}
	return failed(code)
}

// released is a resource that the host must release, and its record before it was renamed; nil if it was not.
type released struct {
	*registry.Resource
	renamed *area.Record
	term    *term
}

func keyOf(r wire.Resource) registry.Key { return registry.Key{Lockspace: r.Lockspace, Name: r.Name} }

// releaseOne takes a resource from a client, and reports whether the host must release it. If there is a new name
// it renames the resource before, under the lock: the next holder of the lock reads the record.
func (c *conn) releaseOne(client *registry.Client, key registry.Key, rename string) (r released, last bool, code wire.Code) {
	c.mu.Lock()
	r.Resource, code = c.reg.Has(client, key)
	c.mu.Unlock()
	if code != wire.OK {
		return r, false, code
	}
	if rename != "" {
		code = c.rename(client, &r, rename)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return r, c.reg.Undo(client, r.Resource), code
}

func (c *conn) rename(client *registry.Client, r *released, to string) wire.Code {
	t := c.current()
	c.mu.Lock()
	alone := r.Alone(client)
	c.mu.Unlock()
	if t == nil || !alone {
		return wire.Errno(syscall.EINVAL)
	}
	rec, code := c.record(t, r.Resource.Resource)
	if code != wire.OK {
		return code
	}
	renamed, d := rec, r.Disks[0]
	renamed.Name = to
	if _, err := t.areas.Write(context.Background(), c.peer(), renamed, d.Path, d.Offset); err != nil {
		return c.areaCode(err)
	}
	r.renamed, r.term = &rec, t
	return wire.OK
}

func (c *conn) inquire(req *wire.Request) answer {
	client, code := c.begin(req)
	if code != wire.OK {
		return failed(code)
	}
	defer c.end(client)
	var found []wire.Resource
	var has []registry.Resource
	c.mu.Lock()
	for _, res := range c.reg.Of(client.ID) {
		has = append(has, *res)
	}
	c.mu.Unlock()
	for _, res := range has {
		if !res.Shared {
			if code := c.publish(&res); code != wire.OK {
				return failed(code)
			}
		}
		found = append(found, res.Resource)
	}
	if len(found) == 0 {
		return answer{}
	}
	text, err := wire.Inquiry(found)
	if err != nil {
		return failed(wire.Errno(syscall.ELIBSCN))
	}
	return answer{data: uint32(len(found)), body: text}
}

// lockCode returns the code for an error of a request to bakeryd, and logs what sanlock has no code for.
func (c *conn) lockCode(err error) wire.Code {
	switch {
	case errors.Is(err, api.ErrInvalid):
		return wire.Errno(syscall.EINVAL)
	case errors.Is(err, api.ErrForbidden):
		return wire.Errno(syscall.EACCES)
	case errors.Is(err, api.ErrUnavailable), errors.Is(err, api.ErrLeaseLost), errors.Is(err, api.ErrLost):
		return wire.Errno(syscall.ENOSPC)
	}
	c.log.Warn("a request of the sanlock socket failed", "pid", c.caller.Process.PID, "err", err)
	if errors.Is(err, api.ErrFull) {
		return wire.Errno(syscall.ENOLCK)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return wire.AioTimeout
	}
	return wire.Errno(syscall.EIO)
}
