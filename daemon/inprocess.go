package daemon

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// InProcess is a client in the process of the daemon: test/sim has no sockets. It has root's rights
// and a session, as a client of the socket has. Therefore its request outlives the daemon.
type InProcess struct {
	Session string // id, 32 hex digits
	// of the hold that the client returns to; 0 requests the lock, or returns to a place in the
	// queue
	Token  layout.Ticket
	Dead   bool            // a later daemon finds that the client's process has ended
	Killed <-chan struct{} // closed when the daemon counts as killed
}

// SessionHold is a hold of an in-process client.
type SessionHold struct {
	*locks.Hold
	attached *session.Attachment
	client   *inProcess
	drained  <-chan struct{}
}

// AcquireInProcess blocks until the client has the lock. If the daemon counts as killed, it returns
// ErrUnavailable and leaves the session as it is.
func (h *Host) AcquireInProcess(ctx context.Context, req locks.Request, by InProcess) (*SessionHold, error) {
	c := new(inProcess)
	root := session.Client{May: func(string) error { return nil }}
	if by.Dead {
		root.Peer.PID = math.MaxInt32
	}
	a, err := h.sessions.Open(session.LockRequest{Name: req.Name, Mode: req.Mode, NonBlock: req.Try, Permits: req.Permits,
		PID: os.Getpid(), Session: by.Session, Token: by.Token}, root, c)
	if err != nil {
		return nil, err
	}
	s := a.Session()
	a.StartSoon()
	held := &SessionHold{attached: a, client: c, drained: h.ending.Drained}
	select {
	case <-s.Done():
		if held.Hold, err = s.Outcome(); err == nil {
			return held, nil
		}
	case <-by.Killed:
		c.left.Store(true)
		return nil, fmt.Errorf("%w: bakeryd has died", api.ErrUnavailable)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	held.HangUp()
	return nil, err
}

// HangUp ends the client's connection, and with it the hold.
func (h *SessionHold) HangUp() {
	h.client.left.Store(true)
	h.attached.Leave()
}

// Drained returns a channel that is closed when the holder must stop because the daemon leaves.
func (h *SessionHold) Drained() <-chan struct{} { return h.drained }

// inProcess is the subscriber of an InProcess client, which asks its hold instead of reading events.
type inProcess struct{ left atomic.Bool }

func (c *inProcess) Gone() bool      { return c.left.Load() }
func (c *inProcess) Listening() bool { return true }
func (c *inProcess) Send(*api.Event) {}
func (c *inProcess) Close()          {}
