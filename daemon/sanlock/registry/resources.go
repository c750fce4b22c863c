package registry

import (
	"slices"
	"syscall"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// BeginAcquire decides a request for a resource. If the host has it and the client may have it too, the
// client is a user of it at the return, and fresh is false. If the host must get it first, fresh is true.
//
// A request with AcquireOrphanOnly is refused with ENOENT if there is no orphan. sanlock 3.8.5 documents
// that, but acquires the resource unless AcquireLVB is given, too.
func (r *Registry) BeginAcquire(c *Client, want wire.Resource, flags uint32) (res *Resource, fresh bool, code wire.Code) {
	if len(want.Disks) == 0 {
		return nil, false, wire.Errno(syscall.ERANGE)
	}
	if s := r.Spaces[want.Lockspace]; s == nil || s.State != Present || s.Dead {
		return nil, false, wire.Errno(syscall.ENOSPC)
	}
	shared := want.Flags&wire.ResShared != 0
	res = r.Resources[Key{want.Lockspace, want.Name}]
	adopts := flags&(wire.AcquireOrphan|wire.AcquireOrphanOnly) != 0
	switch {
	case res == nil && flags&wire.AcquireOrphanOnly != 0:
		return nil, false, wire.Errno(syscall.ENOENT)
	case res == nil:
		res = &Resource{Resource: want, State: Adding, Shared: shared, Users: []int{c.ID}, LVB: flags&wire.AcquireLVB != 0,
			Persistent: want.Flags&wire.ResPersistent != 0}
		r.Resources[res.Key()] = res
		return res, true, wire.OK
	case res.State == Removing:
		return nil, false, wire.Errno(syscall.EAGAIN)
	case res.State == Adding && slices.Contains(res.Users, c.ID): // twice in one request
		return nil, false, wire.Errno(syscall.EEXIST)
	case res.State == Adding || res.Converting:
		return nil, false, wire.Errno(syscall.EBUSY)
	case res.Orphan() && (!adopts || res.Shared != shared):
		return nil, false, wire.Errno(syscall.EUCLEAN)
	case !res.Orphan() && !(res.Shared && shared):
		return nil, false, wire.Errno(syscall.EEXIST)
	}
	res.Users = append(res.Users, c.ID)
	res.LVB = res.LVB || flags&wire.AcquireLVB != 0
	res.Persistent = res.Persistent || want.Flags&wire.ResPersistent != 0
	return res, false, wire.OK
}

// Withdraw takes a resource from a client, once if it has it several times, and reports whether the host must release
// it: it is being removed then. A persistent one without a client is an orphan.
func (r *Registry) Withdraw(c *Client, res *Resource) (release bool) {
	if at := slices.Index(res.Users, c.ID); at >= 0 {
		res.Users = slices.Delete(res.Users, at, at+1)
	}
	if release = res.Orphan() && !res.Persistent; release {
		res.giveUp()
	}
	return release
}

// Undo is Withdraw that leaves no orphan.
func (r *Registry) Undo(c *Client, res *Resource) (release bool) {
	if r.Withdraw(c, res) {
		return true
	}
	if len(res.Users) > 0 || res.State == Removing {
		return false
	}
	res.giveUp()
	return true
}

// Alone reports whether a resource is exclusively the client's.
func (res *Resource) Alone(c *Client) bool {
	return res.State == Present && !res.Shared && len(res.Users) == 1 && res.Users[0] == c.ID
}

// Has returns a resource of a client. The code is -1, as sanlock's, if the client does not have it.
func (r *Registry) Has(c *Client, key Key) (*Resource, wire.Code) {
	res := r.Resources[key]
	if res == nil || !slices.Contains(res.Users, c.ID) {
		return nil, -1
	}
	return res, wire.OK
}

// BeginReleaseOrphans marks orphans as being removed: one, or with an empty name all of the lockspace.
func (r *Registry) BeginReleaseOrphans(key Key) (found []*Resource) {
	for _, res := range r.In(key.Lockspace) {
		if res.Orphan() && (key.Name == "" || key.Name == res.Name) {
			res.giveUp()
			found = append(found, res)
		}
	}
	return found
}

// Drop removes a resource that the host does not have, or not any more.
func (r *Registry) Drop(res *Resource) {
	if r.Resources[res.Key()] == res {
		delete(r.Resources, res.Key())
	}
}

// BeginConvert returns the resource of a client that is to change its mode. EndConvert must follow.
func (r *Registry) BeginConvert(c *Client, want wire.Resource) (*Resource, wire.Code) {
	res := r.Resources[Key{want.Lockspace, want.Name}]
	switch {
	case res == nil || !slices.Contains(res.Users, c.ID):
		return nil, wire.Errno(syscall.ENOENT)
	case res.Shared == (want.Flags&wire.ResShared != 0):
		return nil, wire.Errno(syscall.EALREADY)
	case len(res.Users) > 1:
		return nil, wire.Errno(syscall.EAGAIN)
	}
	res.Converting = true
	return res, wire.OK
}

// EndConvert sets the mode of a resource once the host has it.
func (res *Resource) EndConvert(shared bool) {
	res.Converting, res.Shared = false, shared
	if res.Flags &^= wire.ResShared; shared {
		res.Flags |= wire.ResShared
	}
}

// Held returns a resource that a client of this host has, with its value block.
func (r *Registry) Held(key Key) (*Resource, wire.Code) {
	res := r.Resources[key]
	switch {
	case res == nil || res.State != Present || res.Orphan():
		return nil, wire.Errno(syscall.ENOENT)
	case !res.LVB:
		return nil, wire.Errno(syscall.EINVAL)
	}
	return res, wire.OK
}
