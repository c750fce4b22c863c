package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// caller is the process at the other end of a connection. A request's own statements about its
// sender are for display. Only what the kernel recorded when the connection was made counts. A
// process that was handed an open connection acts as the one that made it.
type caller struct {
	srv    *Server
	conn   net.Conn      // nil if unknown
	who    access.Caller // without the groups
	groups func() []int  // supplementary groups; nil if unknown
}

type callerKey struct{}

var unknown = access.Caller{UID: -1, GID: -1}

// arrived records the peer of a connection, for all its requests.
func (s *Server) arrived(ctx context.Context, conn net.Conn) context.Context {
	c := &caller{srv: s, conn: conn, who: unknown}
	if conn, ok := conn.(*net.UnixConn); ok {
		c.who.PID, c.who.UID, c.who.GID = peer.Credentials(conn)
		c.groups = sync.OnceValue(func() []int { return peer.Groups(conn) })
	}
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf returns the caller of a request.
func callerOf(r *http.Request) *caller {
	if c, ok := r.Context().Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{who: unknown}
}

// socket returns the connection to the socket, or nil if it is one to an address.
func (c *caller) socket() *net.UnixConn {
	conn, _ := c.conn.(*net.UnixConn)
	return conn
}

// aboutLock is a request body that names a lock.
type aboutLock interface{ lockName() string }

// permit returns nil if the caller of a request may have what its body asks for, else ErrInvalid or
// ErrForbidden.
func permit(r *http.Request, action access.Action, body any) error {
	c := callerOf(r)
	switch {
	case action == access.Lock:
		return nil // the session checks it, where a returning client is known
	case c.srv == nil:
		return fmt.Errorf("%w: no caller is known of this request", api.ErrForbidden)
	}
	name := ""
	if b, ok := body.(aboutLock); ok {
		name = b.lockName()
	}
	return c.may(action, name)
}

// may returns nil if the caller may do the action, else ErrInvalid or a refusal, which is recorded.
func (c *caller) may(a access.Action, lock string) error {
	rules := c.srv.rules
	if c.srv.cfg.Policy != nil {
		rules.Policy = c.srv.cfg.Policy.Current.Load()
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
		if no.OfPolicy() && c.srv.cfg.Policy.Changed() {
			no.SetChanged()
		}
		c.srv.refused.Note(no)
	}
	return err
}

// client returns what a session knows of the caller.
func (c *caller) client() session.Client {
	id, _ := process.Of(c.who.PID) // zero if it has ended
	return session.Client{Peer: id, UID: c.who.UID, May: func(lock string) error { return c.may(access.Lock, lock) }}
}

// notOwn converts a NotOwner error into a refusal. It returns all other errors unchanged.
func (c *caller) notOwn(err error, a access.Action) error {
	theirs, ok := err.(*session.NotOwner)
	if !ok {
		return err
	}
	no := &access.Refusal{Caller: c.who, Action: a, Lock: theirs.Lock, Reason: theirs.Error(),
		Remedy: "only the user who asked for the lock, and root, can use its session"}
	c.srv.refused.Note(no)
	no.Lock = "" // the answer must not show the lock
	return no
}
