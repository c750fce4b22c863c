// Package fdlimit shares this process's file descriptors out among its clients, and refuses clients when none is left.
//
// A client uses one descriptor for its connection, and one more for the FIFO of its command. A process without
// descriptors can neither accept a connection to refuse it, nor open the files that it needs to rejoin its lockspace.
// Therefore clients get only those that bakeryd does not need itself. The device stays open, so no lease ends for want
// of a descriptor.
package fdlimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/warn"
)

const (
	// ownDescriptors is the number that bakeryd needs itself: device, lock file, journal, timers, files below /proc.
	ownDescriptors = 56

	// leastDescriptors is the least limit with which bakeryd works.
	leastDescriptors = ownDescriptors + 8

	// MaxReaders is the highest number of connections over a loopback address.
	MaxReaders = 64

	// Refusing is the highest number of refused clients that are waited for.
	Refusing = 16

	// refusalTimeout is the time that a refused client has to read the reason.
	refusalTimeout = 300 * time.Millisecond

	// drained is the number of bytes that are read of a refused request.
	drained = 32 << 10
)

// ErrLimits is returned when the limit of open files is too low to serve any client.
var ErrLimits = errors.New("the limit of open files is too low")

// CheckLimits returns ErrLimits if this process has too few descriptors for a bakeryd.
func CheckLimits() error {
	if n := openFiles(); n < leastDescriptors {
		return fmt.Errorf("%w: %d, want at least %d, and one or two more for each client: see ulimit -n, or LimitNOFILE= of the unit",
			ErrLimits, n, leastDescriptors)
	}
	return nil
}

// openFiles returns the limit of open files. Go raises it to the hard limit when a program starts.
func openFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return leastDescriptors // a wrong guess costs less than a bakeryd that does not start
	}
	return int(min(limit.Cur, 1<<30))
}

// Budget is the descriptors that clients may use. One user gets only a share of them. A reserve is left to root and to
// bakeryd's own user, so that these can always see the state, and act on it.
type Budget struct {
	Limit      int                // of all clients
	share      int                // of one user
	reserve    int                // for privileged users
	Privileged func(uid int) bool // reports whether a user is privileged; nil: no user is
	of         *Budget            // the budget that this one is a part of; nil: none

	mu     sync.Mutex // guards the fields below
	used   int
	byUser map[int]int
	conns  map[net.Conn]int // the user of each connection
}

// Clients returns the budget of all clients of this process.
var Clients = sync.OnceValue(func() *Budget {
	rules := access.WithoutPolicy()
	return NewBudget(openFiles()-ownDescriptors, func(uid int) bool { return rules.Privileged(access.Caller{UID: uid}) })
})

// NewBudget returns a budget of limit descriptors.
func NewBudget(limit int, privileged func(uid int) bool) *Budget {
	return &Budget{Limit: limit, share: max(limit/4, 4), reserve: limit / 8, Privileged: privileged, byUser: map[int]int{}, conns: map[net.Conn]int{}}
}

// ForReaders returns the part of a budget for connections over a loopback address, which any user of this machine can
// make: at least three quarters stay with the others.
func (d *Budget) ForReaders() *Budget {
	limit := max(1, min(MaxReaders, d.Limit/4))
	return &Budget{Limit: limit, share: limit, of: d, byUser: map[int]int{}, conns: map[net.Conn]int{}}
}

// UnknownUser is the user of a connection over an address.
const UnknownUser = -1

// Take takes a descriptor for a user. It returns api.ErrOverload, with the reason, if none is left for that user.
func (d *Budget) Take(uid int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch privileged := d.Privileged != nil && d.Privileged(uid); {
	case d.used >= d.Limit:
		return fmt.Errorf("%w: clients have all %d file descriptors that are for them", api.ErrOverload, d.Limit)
	case privileged:
	case d.used >= d.Limit-d.reserve:
		return fmt.Errorf("%w: clients have all %d file descriptors that are for users other than root", api.ErrOverload, d.Limit-d.reserve)
	case d.byUser[uid] >= d.share && uid != UnknownUser:
		return fmt.Errorf("%w: user %d has the %d file descriptors that one user may have", api.ErrOverload, uid, d.share)
	}
	if d.of != nil {
		if err := d.of.Take(uid); err != nil {
			return err
		}
	}
	d.used++
	d.byUser[uid]++
	return nil
}

// MustTake takes a descriptor for a file that is open already.
func (d *Budget) MustTake(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used++
	d.byUser[uid]++
}

// Give returns a descriptor of a user.
func (d *Budget) Give(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used--
	if d.byUser[uid]--; d.byUser[uid] == 0 {
		delete(d.byUser, uid)
	}
	if d.of != nil {
		d.of.Give(uid)
	}
}

// takeFor takes a descriptor for a connection.
func (d *Budget) takeFor(conn net.Conn) error {
	uid := UnknownUser
	if c, ok := conn.(*net.UnixConn); ok {
		_, uid, _ = peer.Credentials(c)
	}
	err := d.Take(uid)
	if err == nil {
		d.mu.Lock()
		d.conns[conn] = uid
		d.mu.Unlock()
	}
	return err
}

// GiveFor returns the descriptor of a connection. It may be called again.
func (d *Budget) GiveFor(conn net.Conn) {
	d.mu.Lock()
	uid, ok := d.conns[conn]
	delete(d.conns, conn)
	d.mu.Unlock()
	if ok {
		d.Give(uid)
	}
}

// ConnState returns a descriptor when net/http closes its connection. A connection that has become a link calls GiveFor.
func (d *Budget) ConnState(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		d.GiveFor(conn)
	}
}

// InUse returns the number of descriptors in use.
func (d *Budget) InUse() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// Listener accepts connections while there are descriptors for them, and refuses the others with a reason.
type Listener struct {
	net.Listener
	log         *slog.Logger
	descriptors *Budget
	tally       *tally.Tally
	refused     chan struct{} // has an element for each refused client that is waited for
	failing     warn.Limiter  // owned by the goroutine that accepts, as full is
	full        warn.Limiter
}

// NewListener returns a listener that accepts the connections of ln within a budget.
func NewListener(ln net.Listener, log *slog.Logger, t *tally.Tally, d *Budget) *Listener {
	return &Listener{Listener: ln, log: log, descriptors: d, tally: t, refused: make(chan struct{}, Refusing)}
}

// Accept returns a connection that has taken a descriptor. After an error net/http pauses before it tries again.
func (k *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := k.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) && k.failing.Allow() {
				k.log.Warn("accepting a connection failed, retrying", "err", err)
			}
			return nil, err
		}
		err = k.descriptors.takeFor(conn)
		if err == nil {
			return conn, nil
		}
		if k.full.Allow() {
			k.log.Warn("too many clients, refusing one", "descriptors", k.descriptors.Limit, "err", err)
		}
		select {
		case k.refused <- struct{}{}:
			go func() {
				k.refuse(conn, err, refusalTimeout)
				<-k.refused
			}()
		default:
			k.refuse(conn, err, 0)
		}
	}
}

// refuse sends a client the reason why it is not served. A client that is still writing its request when the connection
// is closed cannot read the answer; therefore its request is read for that time.
func (k *Listener) refuse(conn net.Conn, why error, timeout time.Duration) {
	defer conn.Close()
	e := api.ErrorOf(why)
	k.tally.Refused.Add(e.Code)
	body, err := json.Marshal(map[string]*api.Error{"error": e})
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(max(timeout, 100*time.Millisecond))) // the answer fits into the buffer
	_, err = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), len(body), body)
	if c, ok := conn.(*net.UnixConn); ok && err == nil && timeout > 0 {
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(c, drained))
	}
}
