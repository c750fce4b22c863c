// Package hosts has the names of the locks that a sanlock lockspace has, and knows which hosts are in one and in what state
// they are for sanlock. It asks the locks and the membership of this host, and no client.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/layout"
)

// Name returns the name of the lock of a resource, or of another thing below a lockspace. It has no bytes of
// the clients' names that a lock name cannot have, and none that separate its parts.
func Name(parts ...string) string {
	for i, part := range parts {
		var out strings.Builder
		for _, b := range []byte(part) {
			if b <= ' ' || b >= 0x7f || b == '/' || b == '%' {
				fmt.Fprintf(&out, "%%%02X", b)
			} else {
				out.WriteByte(b)
			}
		}
		parts[i] = out.String()
	}
	return "sanlock/" + strings.Join(parts, "/")
}

// Prefix begins the names of the locks of the host ids of a lockspace.
func Prefix(lockspace string) string { return Name(lockspace, "host") + "/" }

// Lock returns the name of the lock of a host id of a lockspace.
func Lock(l wire.Lockspace) string {
	return Prefix(l.Name) + strconv.FormatUint(l.HostID, 10)
}

// Max returns how many host ids an area with these flags has, as sanlock counts them.
func Max(flags uint32) uint64 {
	switch {
	case flags&wire.Sector4K == 0:
	case flags&wire.Align1M != 0:
		return 250
	case flags&wire.Align2M != 0:
		return 500
	case flags&wire.Align4M != 0:
		return 1000
	}
	return 2000
}

// View is what this host knows of the hosts. It is safe for concurrent use.
type View struct {
	locks  *locks.Manager
	member *membership.Member
	lease  time.Duration

	mu   sync.Mutex // guards the field below
	seen map[key]seen
}

// key is a host id of a sanlock lockspace.
type key struct {
	lockspace string
	id        uint64
}

// seen is the host of the bakery lockspace that had a host id the last time, and its generation then.
type seen struct {
	host        int
	incarnation uint64
	generation  layout.Ticket
}

func New(l *locks.Manager, m *membership.Member, lease time.Duration) *View {
	return &View{locks: l, member: m, lease: lease, seen: map[key]seen{}}
}

// Lockspace is a read of which hosts are in a sanlock lockspace.
type Lockspace struct {
	view *View
	all  map[uint64]seen // also those that were in it
	held map[uint64]bool // ids whose hold stands on the disk
}

// In reads which hosts are in a sanlock lockspace. It returns the errors of locks.Manager.
func (v *View) In(ctx context.Context, lockspace string) (*Lockspace, error) {
	listing, err := v.locks.Locks(ctx)
	if err != nil {
		return nil, err
	}
	in := &Lockspace{view: v, all: map[uint64]seen{}, held: map[uint64]bool{}}
	known, _ := v.member.Known()
	for _, l := range listing.Locks {
		number, ok := strings.CutPrefix(l.Name, Prefix(lockspace))
		id, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			continue
		}
		holders, err := v.locks.Holders(ctx, l.Name)
		if err != nil && !errors.Is(err, api.ErrNoLock) {
			return nil, err
		}
		v.mu.Lock()
		if len(holders) > 0 {
			h := holders[0]
			v.seen[key{lockspace, id}] = seen{host: h.Host, incarnation: known[h.Host-1].Incarnation, generation: h.Token}
			in.held[id] = true
		}
		if was, ok := v.seen[key{lockspace, id}]; ok {
			in.all[id] = was
		}
		v.mu.Unlock()
	}
	return in, nil
}

// Held returns the ids that hosts have, in order.
func (in *Lockspace) Held() []uint64 { return slices.Sorted(maps.Keys(in.held)) }

// Host returns the host of the bakery lockspace that has an id.
func (in *Lockspace) Host(id uint64) int { return in.all[id].host }

// Describe returns what sanlock says of a host: its state, and when its lease was renewed the last time as far as
// this host has seen it.
func (in *Lockspace) Describe(id uint64, ioTimeout uint32, now time.Duration) wire.Host {
	was, ok := in.all[id]
	if !ok {
		return wire.Host{ID: id, Flags: wire.HostFree}
	}
	known, _ := in.view.member.Known()
	h := known[was.host-1]
	if was.host == in.view.member.ID() {
		h.Readable, h.Gone, h.Incarnation, h.Since = true, false, was.incarnation, now
	}
	w := wire.Host{ID: id, Generation: uint64(was.generation), IOTimeout: ioTimeout, Flags: in.view.state(h, was, in.held[id], now)}
	if w.Flags != wire.HostFree {
		w.Timestamp = max(1, uint64(h.Since/time.Second))
	}
	return w
}

func (v *View) state(h lease.Host, was seen, held bool, now time.Duration) uint32 {
	gone := h.Gone || h.Incarnation != was.incarnation
	switch {
	case gone && h.State != layout.StateLeft:
		return wire.HostDead
	case gone || !held:
		return wire.HostFree
	case !h.Readable:
		return wire.HostUnknown
	case now-h.Since > v.lease:
		return wire.HostFail
	}
	return wire.HostLive
}

// Silent reports whether a host of the bakery lockspace has not renewed its lease for so long that it may be dead.
func (v *View) Silent(host int, now time.Duration) bool {
	if host == v.member.ID() {
		return false
	}
	known, _ := v.member.Known()
	h := known[host-1]
	return h.Gone || !h.Readable || now-h.Since > v.lease/2
}

// Busy returns why a resource with these holders is not free.
func (v *View) Busy(holders []locks.Asked, now time.Duration) wire.Code {
	if len(holders) == 0 {
		return wire.AcquireOther
	}
	exclusive, silent := false, true
	for _, h := range holders {
		exclusive = exclusive || h.Mode == layout.Exclusive
		silent = silent && v.Silent(h.Host, now)
	}
	switch {
	case silent:
		return wire.AcquireOwnedRetry
	case exclusive:
		return wire.AcquireIdlive
	}
	return wire.Errno(syscall.EAGAIN) // readers
}
