package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/layout"
)

// caller is who is at the other end of a connection. Whatever a request says of its sender is for people: only what the
// kernel noted as the connection was made counts. Who was handed an open connection acts as the one who made it.
type caller struct {
	srv    *Server
	who    access.Caller  // but for the groups
	groups func() []int   // supplementary ones
	action *access.Action // of the request that is being answered; nil on a link
}

type callerKey struct{}

// arrived notes who has made a connection, for all that comes by it.
func (s *Server) arrived(ctx context.Context, conn net.Conn) context.Context {
	c := &caller{srv: s, who: access.Caller{UID: -1, GID: -1}, groups: func() []int { return nil }}
	if conn, ok := conn.(*net.UnixConn); ok {
		_ = peer.Control(conn, func(fd int) {
			if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				c.who = access.Caller{UID: int(cred.Uid), GID: int(cred.Gid), PID: int(cred.Pid)}
			}
		})
		c.groups = sync.OnceValue(func() []int { return peerGroups(conn) })
	}
	return context.WithValue(context.WithValue(ctx, connKey{}, conn), callerKey{}, c)
}

// callerOf is who makes a request. One that did not come by a connection of the socket is nobody's.
func callerOf(r *http.Request) *caller {
	c, _ := r.Context().Value(callerKey{}).(*caller)
	return c
}

// as answers a call as one action: what its handler asks for is allowed, or not, as that (decode).
func (s *Server) as(action access.Action, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by := caller{srv: s, who: access.Caller{UID: -1, GID: -1}}
		if c := callerOf(r); c != nil {
			by = *c
		}
		by.action = &action
		h(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, &by)))
	}
}

// aboutLock is a request's body that names the lock which it is about.
type aboutLock interface{ lockName() string }

// permit tells whether the sender of a request may have what its body asks for. It returns ErrInvalid or ErrForbidden.
func permit(r *http.Request, body any) error {
	c := callerOf(r)
	if c == nil || c.action == nil {
		return fmt.Errorf("%w: no action is known of this call", api.ErrForbidden)
	}
	if *c.action == access.Lock {
		return nil // who only comes back is known where sessions are opened
	}
	name := ""
	if b, ok := body.(aboutLock); ok {
		name = b.lockName()
	}
	return c.may(*c.action, name)
}

// may is nil if the caller may do that, else ErrInvalid, or a refusal that was noted.
func (c *caller) may(a access.Action, lock string) error {
	rules := c.srv.rules
	if c.srv.policy != nil {
		rules.Policy = c.srv.policy.current.Load()
	}
	who := c.who
	if !rules.Privileged(who) {
		switch a {
		case access.Lock, access.Create, access.Request:
			if err := layout.ValidateLockName(lock); err != nil {
				return fmt.Errorf("%w: %w", api.ErrInvalid, err)
			}
		}
		if rules.Policy != nil && c.groups != nil {
			who.Groups = c.groups()
		}
	}
	err := rules.Decide(who, a, lock)
	if no, ok := err.(*access.Refusal); ok {
		c.srv.refusals.note(no)
	}
	return err
}

// anothers is returned when a session is asked for that another user has opened.
type anothers struct{ session, lock string }

func (a *anothers) Error() string { return fmt.Sprintf("session %s is another user's", a.session) }

// notOwn makes a refusal of an error that is anothers, and leaves all other ones.
func (c *caller) notOwn(err error, a access.Action) error {
	theirs, ok := err.(*anothers)
	if !ok {
		return err
	}
	no := &access.Refusal{Caller: c.who, Action: a, Lock: theirs.lock, Reason: theirs.Error(),
		Remedy: "only the user who asked for the lock, and root, can come back to it"}
	c.srv.refusals.note(no)
	no.Lock = "" // whose it is does not tell what it is of
	return no
}

// peerGroups are the supplementary groups of who has connected. Kernels before 4.13 do not tell.
func peerGroups(conn *net.UnixConn) (groups []int) {
	_ = peer.Control(conn, func(fd int) {
		ids := make([]uint32, 64)
		for range 2 {
			size := uint32(len(ids) * 4)
			_, _, no := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(&ids[0])), uintptr(unsafe.Pointer(&size)), 0)
			if no == unix.ERANGE {
				ids = make([]uint32, size/4)
				continue
			}
			if no == 0 {
				for _, id := range ids[:size/4] {
					groups = append(groups, int(id))
				}
			}
			return
		}
	})
	return groups
}
