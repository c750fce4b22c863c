//go:build sim

package daemon

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// Kept is a hold of a simulated client. It has a session, as those of the socket have: the hold outlives bakeryd.
type Kept struct {
	*Hold
	session *session
	follows *follower
	hangUp  func()
}

// Ask asks for a lock by a session, or comes back to it: to its place, or to the hold that has the token. If bakeryd dies
// it returns ErrUnavailable at once, and the session is left as it is. A mortal client dies then, as the next bakeryd sees.
func (d *Daemon) Ask(ctx context.Context, req Request, id string, token layout.Ticket, mortal bool, dies <-chan struct{}) (*Kept, error) {
	conn, hangUp := connect()
	st := &stream{conn: conn, by: &caller{srv: &Server{}, who: access.Caller{}}} // root
	s, f, err := d.sessions.open(lockRequest{Name: req.Name, Mode: req.Mode, NonBlock: req.Try, Permits: req.Permits,
		Session: id, Token: token}, st)
	if err != nil {
		hangUp()
		return nil, err
	}
	if token == 0 { // it is no process
		s.peer = process.ID{}
		if mortal {
			s.peer.PID = math.MaxInt32
		}
	}
	d.sessions.tasks.Go(s.start)
	k := &Kept{session: s, follows: f, hangUp: hangUp}
	select {
	case <-s.done:
		if s.err == nil {
			k.Hold = s.hold
			return k, nil
		}
		err = s.err
	case <-dies:
		hangUp()
		return nil, fmt.Errorf("%w: bakeryd has died", ErrUnavailable)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	k.Leave()
	return nil, err
}

// Leave lets go of the lock: the client hangs up.
func (k *Kept) Leave() {
	k.hangUp()
	k.session.leave(k.follows)
}

// Drained is closed when the holder is to stop, for bakeryd leaves.
func (k *Kept) Drained() <-chan struct{} { return k.session.all.d.drained }

// connect returns this end of a connection, and what closes both.
func connect() (*net.UnixConn, func()) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		panic(err)
	}
	file := os.NewFile(uintptr(fds[0]), "simulated")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		panic(err)
	}
	return conn.(*net.UnixConn), func() {
		_ = unix.Close(fds[1])
		_ = conn.Close()
	}
}
