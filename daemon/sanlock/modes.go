package sanlock

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/sanlock/area"
	"github.com/bakeryd/bakeryd/daemon/sanlock/hosts"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

func (c *conn) convert(req *wire.Request) answer {
	client, code := c.begin(req)
	if code != wire.OK {
		return failed(code)
	}
	code = c.convertOne(client, req)
	c.end(client)
	return c.settled(failed(code)) // the next process finds the mode in the handover file
}

func (c *conn) convertOne(client *registry.Client, req *wire.Request) wire.Code {
	if len(req.Resources) != 1 {
		return wire.Errno(syscall.EINVAL)
	}
	want := req.Resources[0]
	c.mu.Lock()
	res, code := c.reg.BeginConvert(client, want)
	c.mu.Unlock()
	if code != wire.OK {
		return code
	}
	h, t, shared := c.holdOf(res.Hold), c.current(), want.Flags&wire.ResShared == 0 // its mode is the other one
	if h == nil || t == nil {
		code = wire.Errno(syscall.ENOSPC)
	} else if code = c.setMode(t, h, res, !shared, req.Flags&wire.ConvertOwnerNowait == 0); code == wire.OK {
		shared = !shared
		if code = c.renewConverted(t, h, res); code != wire.OK {
			shared = h.SetMode(context.Background(), layout.Shared) == nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	res.EndConvert(shared)
	return code
}

// renewConverted gives a resource that has become exclusive a new version.
func (c *conn) renewConverted(t *term, h *session.Own, res *registry.Resource) wire.Code {
	if h.Mode() == layout.Shared {
		return wire.OK
	}
	rec, code := c.record(t, res.Resource)
	if code != wire.OK {
		return code
	}
	return c.renew(t, h, res, rec)
}

// setMode changes the mode of a hold. Readers that may be dead are waited for, unless wait is false.
func (c *conn) setMode(t *term, h *session.Own, res *registry.Resource, shared, wait bool) wire.Code {
	for {
		_, changed := t.host.Member().Known()
		err := h.SetMode(context.Background(), mode(shared))
		if err == nil {
			return wire.OK
		}
		if !errors.Is(err, api.ErrUpgrade) {
			return c.lockCode(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		holders, err := t.host.LockManager().Holders(ctx, hosts.Name(res.Lockspace, res.Name))
		cancel()
		if err != nil {
			return c.lockCode(err)
		}
		silent, others := true, false
		for _, o := range holders {
			if o.Host != t.host.Member().ID() {
				silent, others = silent && t.hosts.Silent(o.Host, c.cfg.Clock.Now()), true
			}
		}
		switch {
		case !others || !silent:
			return wire.Errno(syscall.EAGAIN)
		case !wait:
			return wire.AcquireOwnedRetry
		}
		select {
		case <-changed:
		case <-h.Lost():
			return wire.Errno(syscall.ENOSPC)
		case <-c.ended:
			return wire.Errno(syscall.ENOSPC)
		}
	}
}

// The value block of a resource is the value of its lock: the nonce of the record in its area, then the block
// without zeros at its end. With another nonce the area was written again, so the block is of an earlier resource of
// that name. The value of a lock is fenced: only the holder can write it.

// maxBlock is the longest value block, without zeros at its end.
const maxBlock = layout.MaxValue - 8

// readBlock reads the value block of a resource that has just been acquired.
func (c *conn) readBlock(t *term, res *registry.Resource) wire.Code {
	v, err := t.host.LockManager().Value(context.Background(), hosts.Name(res.Lockspace, res.Name))
	if err != nil {
		return c.lockCode(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	res.Block = []byte{}
	if blockOf(v.Value, res.Nonce) {
		res.Block = bytes.Clone(v.Value[8:])
	}
	return wire.OK
}

// blockOf reports whether the value of a lock is a block of the area with a nonce.
func blockOf(value []byte, nonce uint64) bool {
	return len(value) >= 8 && binary.LittleEndian.Uint64(value) == nonce
}

// block returns a resource that a client has, with its value block read, and a copy of it.
func (c *conn) block(r wire.Resource) (res *registry.Resource, is registry.Resource, code wire.Code) {
	c.mu.Lock()
	if res, code = c.reg.Held(keyOf(r)); code == wire.OK {
		is = *res
	}
	c.mu.Unlock()
	t := c.current()
	if code == wire.OK && t == nil {
		code = wire.Errno(syscall.ENOSPC)
	}
	if code == wire.OK && is.Block == nil { // of the previous process
		if code = c.readBlock(t, res); code == wire.OK {
			c.mu.Lock()
			is = *res
			c.mu.Unlock()
		}
	}
	return res, is, code
}

func (c *conn) setLVB(req *wire.Request) answer {
	if len(req.Resources) != 1 {
		return failed(wire.Errno(syscall.EINVAL))
	}
	res, is, code := c.block(req.Resources[0])
	if code == wire.OK {
		code = c.allowed(hosts.Name(is.Lockspace, is.Name))
	}
	if code != wire.OK {
		return failed(code)
	}
	text := bytes.TrimRight(overwrite(is.Block, req.LVB), "\x00")
	switch {
	case len(text) > maxBlock:
		c.log.Warn("a value block of the sanlock socket is too long for the value of a lock", "resource", is.Key().String(), "bytes", len(text), "limit", maxBlock)
		return failed(wire.Errno(syscall.E2BIG))
	case len(req.LVB) > sectorSize(is.Flags):
		return failed(wire.Errno(syscall.E2BIG))
	case is.Shared:
		return failed(wire.Errno(syscall.EINVAL))
	}
	h := c.holdOf(is.Hold)
	if h == nil {
		return failed(wire.Errno(syscall.ENOSPC))
	}
	value := append(binary.LittleEndian.AppendUint64(nil, is.Nonce), text...)
	if err := h.SetValue(context.Background(), value); err != nil {
		return failed(c.lockCode(err))
	}
	c.mu.Lock()
	res.Block = bytes.Clone(text)
	c.mu.Unlock()
	return answer{}
}

// overwrite returns a block with its first bytes replaced.
func overwrite(block, first []byte) []byte {
	return append(bytes.Clone(first), block[min(len(first), len(block)):]...)
}

func (c *conn) getLVB(req *wire.Request) answer {
	if len(req.Resources) != 1 {
		return failed(wire.Errno(syscall.EINVAL))
	}
	_, is, code := c.block(req.Resources[0])
	if code == wire.OK {
		code = c.allowed(hosts.Name(is.Lockspace, is.Name))
	}
	if code != wire.OK {
		return failed(code)
	}
	out := make([]byte, sectorSize(is.Flags))
	copy(out, is.Block)
	return answer{body: out}
}

func sectorSize(flags uint32) int {
	if flags&wire.Sector4K != 0 {
		return 4096
	}
	return 512
}

// The version of a resource, lver, is the token of its holder, or more. A client that has it, by inquire, may demand at
// an acquire that nothing has had the resource exclusively meanwhile. Therefore inquire puts the version into the record
// of the area, and from then on each exclusive holder puts a new one there, before its client learns that it has the
// resource.

// renew gives a resource that was just acquired, or converted to exclusive, its version.
func (c *conn) renew(t *term, h *session.Own, res *registry.Resource, rec area.Record) wire.Code {
	lver := max(uint64(h.Token()), rec.Lver+1)
	if rec.Lver != 0 && h.Mode() == layout.Exclusive {
		if code := c.writeLver(t, res, rec, lver); code != wire.OK {
			return code
		}
	}
	c.mu.Lock()
	res.Lver = lver
	c.mu.Unlock()
	return wire.OK
}

// publish puts the version of a resource into the record of its area.
func (c *conn) publish(res *registry.Resource) wire.Code {
	t := c.current()
	if t == nil {
		return wire.Errno(syscall.ENOSPC)
	}
	rec, code := c.record(t, res.Resource)
	if code != wire.OK || rec.Lver == res.Lver {
		return code
	}
	return c.writeLver(t, res, rec, res.Lver)
}

func (c *conn) writeLver(t *term, res *registry.Resource, rec area.Record, lver uint64) wire.Code {
	rec.Lver = lver
	d := res.Disks[0]
	if err := t.areas.Update(context.Background(), c.peer(), rec, d.Path, d.Offset); err != nil {
		return c.areaCode(err)
	}
	return wire.OK
}
