package sim

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	sessions "github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// inProcess is a client in the process of the daemon: the simulation has no sockets. It has root's
// rights and a session, as a client of the socket has. Therefore its request outlives the daemon.
type inProcess struct {
	session string // id, 32 hex digits
	// of the hold that the client returns to; 0 requests the lock, or returns to a place in the
	// queue
	token  layout.Ticket
	dead   bool            // a later daemon finds that the client's process has ended
	killed <-chan struct{} // closed when the daemon counts as killed
}

// sessionHold is a hold of an in-process client.
type sessionHold struct {
	*locks.Hold
	attached *sessions.Attachment
	client   *subscriber
	drained  <-chan struct{} // closed when the holder must stop because the daemon leaves
}

// acquireInProcess blocks until the client has the lock. If the daemon counts as killed, it returns
// ErrUnavailable and leaves the session as it is.
func acquireInProcess(ctx context.Context, h *daemon.Host, req locks.Request, by inProcess) (*sessionHold, error) {
	c := new(subscriber)
	root := sessions.Client{May: func(string) error { return nil }}
	if by.dead {
		root.Peer.PID = math.MaxInt32
	}
	a, err := h.Sessions().Open(api.LockRequest{Name: req.Name, Mode: req.Mode, NonBlock: req.Try, Permits: req.Permits, NoLinger: req.NoLinger,
		PID: os.Getpid(), Session: by.session, Token: by.token}, root, c)
	if err != nil {
		return nil, err
	}
	s := a.Session()
	a.StartSoon()
	held := &sessionHold{attached: a, client: c, drained: h.Drained()}
	select {
	case <-s.Done():
		if held.Hold, err = s.Outcome(); err == nil {
			return held, nil
		}
	case <-by.killed:
		c.left.Store(true)
		return nil, fmt.Errorf("%w: bakeryd has died", api.ErrUnavailable)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	held.hangUp()
	return nil, err
}

// hangUp ends the client's connection, and with it the hold.
func (h *sessionHold) hangUp() {
	h.client.left.Store(true)
	h.attached.Leave()
}

// subscriber is that of an in-process client, which asks its hold instead of reading events.
type subscriber struct{ left atomic.Bool }

func (c *subscriber) Gone() bool      { return c.left.Load() }
func (c *subscriber) Listening() bool { return true }
func (c *subscriber) Send(*api.Event) {}
func (c *subscriber) Close()          {}
