package sanlock

import (
	"context"
	"errors"
	"syscall"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/sanlock/area"
	"github.com/bakeryd/bakeryd/daemon/sanlock/hosts"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/layout"
)

// sizes has the flags that say how an area is divided.
const sizes = wire.Align1M | wire.Align2M | wire.Align4M | wire.Align8M | wire.Sector512 | wire.Sector4K

// peer returns the user with whose rights files are opened.
func (c *conn) peer() area.Peer {
	return area.Peer{UID: c.caller.UID, GID: c.caller.GID, Groups: c.caller.Groups}
}

// areaCode returns the code for an error of an area, which names the path and the remedy in the log.
func (c *conn) areaCode(err error) wire.Code {
	code := wire.Errno(syscall.EIO)
	var of *area.Error
	if errors.As(err, &of) {
		code = wire.Code(of.Code)
	}
	switch code {
	case wire.LeaderMagic, wire.Errno(syscall.EMSGSIZE), wire.Errno(syscall.ENOSPC), wire.Errno(syscall.ENOENT): // looked for by lvmlockd and libvirt
		c.log.Debug("an area of the sanlock socket is not usable", "pid", c.caller.Process.PID, "err", err)
	default:
		c.log.Warn("an area of the sanlock socket is not usable", "pid", c.caller.Process.PID, "err", err)
	}
	return code
}

func (c *conn) align(req *wire.Request) answer {
	size, err := c.joined.areas.Align(context.Background(), c.peer(), req.Disk.Path)
	if err != nil {
		return failed(wire.Errno(syscall.ENODEV))
	}
	return answer{code: wire.Code(size)}
}

func (c *conn) readLockspace(req *wire.Request) answer {
	l, t := req.Lockspace, c.joined
	rec, err := t.areas.Read(context.Background(), c.peer(), area.Lockspace, l.Disk.Path, l.Disk.Offset, l.Flags)
	if err != nil {
		return failed(c.areaCode(err))
	}
	if l.Name != "" && l.Name != rec.Lockspace {
		return failed(wire.LeaderLockspace)
	}
	l.Name, l.HostID, l.Flags = rec.Lockspace, max(1, l.HostID), rec.Flags
	return answer{data: rec.IOTimeout, body: wire.AppendLockspace(nil, l)}
}

func (c *conn) writeLockspace(req *wire.Request) answer {
	l := req.Lockspace
	rec := area.Record{Kind: area.Lockspace, Flags: l.Flags & sizes, IOTimeout: req.Data2, Lockspace: l.Name}
	if rec.IOTimeout == 0 {
		rec.IOTimeout = defaultIOTimeout
	}
	return c.write(rec, l.Disk, req.Flags)
}

func (c *conn) readResource(req *wire.Request) answer {
	if len(req.Resources) != 1 || len(req.Resources[0].Disks) == 0 {
		return failed(wire.Errno(syscall.EINVAL))
	}
	r, t := req.Resources[0], c.joined
	rec, err := t.areas.Read(context.Background(), c.peer(), area.Resource, r.Disks[0].Path, r.Disks[0].Offset, r.Flags)
	code := wire.OK
	switch {
	case err != nil:
		code = c.areaCode(err)
	case r.Lockspace != "" && r.Lockspace != rec.Lockspace:
		code = wire.LeaderLockspace
	case r.Name != "" && r.Name != rec.Name:
		code = wire.LeaderResource
	default:
		r.Lockspace, r.Name, r.Flags, r.Lver = rec.Lockspace, rec.Name, rec.Flags, rec.Lver
	}
	return answer{code: code, body: wire.AppendResource(nil, r)}
}

func (c *conn) writeResource(req *wire.Request) answer {
	if len(req.Resources) != 1 || len(req.Resources[0].Disks) == 0 {
		return failed(wire.Errno(syscall.EINVAL))
	}
	r := req.Resources[0]
	return c.write(area.Record{Kind: area.Resource, Flags: r.Flags & sizes, IOTimeout: defaultIOTimeout, Lockspace: r.Lockspace, Name: r.Name}, r.Disks[0], req.Flags)
}

// write writes a record, or clears it.
func (c *conn) write(rec area.Record, d wire.Disk, flags uint32) answer {
	t := c.joined
	ctx := context.Background()
	rec.UUID = t.host.Superblock().UUID
	before, _ := t.areas.Read(ctx, c.peer(), rec.Kind, d.Path, d.Offset, rec.Flags) // most areas had none
	var err error
	if flags&wire.WriteClear != 0 {
		err = t.areas.Clear(ctx, c.peer(), rec.Kind, d.Path, d.Offset, rec.Flags)
	} else {
		_, err = t.areas.Write(ctx, c.peer(), rec, d.Path, d.Offset)
	}
	if err != nil {
		return failed(c.areaCode(err))
	}
	if before.Kind == area.Resource && (before.Lockspace != rec.Lockspace || before.Name != rec.Name || flags&wire.WriteClear != 0) {
		c.forget(t, before)
	}
	return answer{}
}

// forget removes the lock of a resource that has no area any more, unless it is in use: its entry in the directory of
// locks is free for another one then. A lock with a value block stays: the area may be a copy, and the block that of the
// original.
func (c *conn) forget(t *term, rec area.Record) {
	lock := hosts.Name(rec.Lockspace, rec.Name)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := c.cfg.May(c.caller, lock)
	if err == nil {
		err = t.host.LockManager().RemoveIfNoValue(ctx, lock, true)
	}
	if err != nil && !errors.Is(err, api.ErrNoLock) && !errors.Is(err, api.ErrBusy) && !errors.Is(err, api.ErrValue) {
		c.log.Warn("removing the lock of a former resource of the sanlock socket failed", "lock", lock, "err", err)
	}
}

// readOwners answers with the resource and the hosts that have it.
func (c *conn) readOwners(req *wire.Request) answer {
	a := c.readResource(req)
	if a.code != wire.OK {
		return failed(a.code)
	}
	t, r := c.joined, req.Resources[0]
	rec, err := t.areas.Read(context.Background(), c.peer(), area.Resource, r.Disks[0].Path, r.Disks[0].Offset, r.Flags)
	if err != nil {
		return failed(c.areaCode(err))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	holders, err := t.host.LockManager().Holders(ctx, hosts.Name(rec.Lockspace, rec.Name))
	if err != nil && !errors.Is(err, api.ErrNoLock) {
		return failed(c.lockCode(err))
	}
	in, err := t.hosts.In(ctx, rec.Lockspace)
	if err != nil {
		return failed(c.lockCode(err))
	}
	r.Lockspace, r.Name, r.Flags, r.Lver = rec.Lockspace, rec.Name, rec.Flags, rec.Lver
	var owners []byte
	n := uint32(0)
	by := map[int]layout.Mode{}
	for _, h := range holders {
		if by[h.Host] = h.Mode; h.Mode == layout.Shared {
			r.Flags |= wire.ResShared
		} else if r.Lver == 0 {
			r.Lver = uint64(h.Token)
		}
	}
	for _, id := range in.Held() {
		mode, holds := by[in.Host(id)]
		if !holds {
			continue
		}
		d := in.Describe(id, 0, c.cfg.Clock.Now())
		h := wire.Host{ID: id, Generation: d.Generation}
		if mode == layout.Exclusive {
			h.Timestamp = d.Timestamp
		}
		owners, n = wire.AppendHost(owners, h), n+1
	}
	return answer{data: n, body: append(wire.AppendResource(nil, r), owners...)}
}
