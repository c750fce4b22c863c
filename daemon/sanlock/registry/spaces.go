package registry

import (
	"syscall"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// same reports whether a lockspace is the one that a client names: by name, disk and host id, unless
// these are empty.
func (s *Space) same(l wire.Lockspace) bool {
	return s.Name == l.Name && s.Disk == l.Disk && (l.HostID == 0 || s.HostID == l.HostID)
}

// BeginAdd adds a lockspace that is not joined yet.
func (r *Registry) BeginAdd(l wire.Lockspace, ioTimeout uint32) (*Space, wire.Code) {
	if l.Name == "" || l.HostID == 0 || l.Disk.Path == "" {
		return nil, wire.Errno(syscall.EINVAL)
	}
	for _, s := range r.Spaces {
		switch {
		case s.same(l) && s.State == Adding:
			return nil, wire.Errno(syscall.EINPROGRESS)
		case s.same(l) && s.State == Removing:
			return nil, wire.Errno(syscall.EAGAIN)
		case s.same(l):
			return nil, wire.Errno(syscall.EEXIST)
		case s.Name == l.Name || s.Disk == l.Disk:
			return nil, wire.Errno(syscall.EINVAL)
		}
	}
	s := &Space{Lockspace: l, IOTimeout: ioTimeout, State: Adding}
	r.Spaces[l.Name] = s
	return s, wire.OK
}

// Inquire returns whether a lockspace is there: also while what uses it is being stopped.
func (r *Registry) Inquire(l wire.Lockspace) wire.Code {
	s := r.Spaces[l.Name]
	switch {
	case s == nil || !s.same(l):
		return wire.Errno(syscall.ENOENT)
	case s.State == Adding:
		return wire.Errno(syscall.EINPROGRESS)
	}
	return wire.OK
}

// BeginRemove marks a lockspace as being removed, and returns its state before. All that uses it must end;
// Blocked says when it can go.
func (r *Registry) BeginRemove(l wire.Lockspace, unused bool) (s *Space, was State, code wire.Code) {
	s = r.Spaces[l.Name]
	switch {
	case unused && len(r.In(l.Name)) > 0:
		return nil, 0, wire.Errno(syscall.EBUSY)
	case s == nil || !s.same(l):
		return nil, 0, wire.Errno(syscall.ENOENT)
	}
	was = s.State
	s.State, s.Dead = Removing, true
	return s, was, wire.OK
}

// Blocked returns what a lockspace that is being removed waits for; "" if nothing.
func (r *Registry) Blocked(s *Space) string {
	for _, res := range r.In(s.Name) {
		if !res.Orphan() {
			return "resource " + res.Name
		}
		if s.UsedByOrphans {
			return "orphan " + res.Name
		}
	}
	if s.Used {
		return "the setting used"
	}
	return ""
}

// Configure is the command set_config. A lockspace that is being removed may wait for it.
func (r *Registry) Configure(name string, what uint32) wire.Code {
	s := r.Spaces[name]
	if s == nil || s.State == Adding {
		return wire.Errno(syscall.ENOENT)
	}
	sets := what == wire.ConfigUsed || what == wire.ConfigUsedByOrphans
	if sets && s.Dead {
		return wire.Errno(syscall.ENOSPC)
	}
	switch what {
	case wire.ConfigUsed, wire.ConfigUnused:
		s.Used = sets
	case wire.ConfigUsedByOrphans, wire.ConfigUnusedByOrphans:
		s.UsedByOrphans = sets
	default:
		return wire.Errno(syscall.EINVAL)
	}
	return wire.OK
}
