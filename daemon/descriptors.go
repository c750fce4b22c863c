package daemon

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
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// Clients use up file descriptors: one for a connection, one more for the FIFO of a command. A process that has none
// left can do nothing about it: it neither accepts a connection to refuse it, nor opens what it needs itself to join
// anew. So clients get what bakeryd has no use for, and hear of it when that is used up. The device is open all the
// time: no lease ends for want of descriptors.

const (
	// ownDescriptors are for bakeryd itself: the device, lock file, journals, timers, what it reads of other processes.
	ownDescriptors = 56

	// leastDescriptors is what a bakeryd can work with.
	leastDescriptors = ownDescriptors + 8

	// mostLooking is how many connections there may be at once by an address.
	mostLooking = 64

	// refusing is how many clients are waited for at once that are refused for want of descriptors.
	refusing = 16

	// refusalPatience is how long one of these may take to read why.
	refusalPatience = 300 * time.Millisecond
)

// ErrLimits is returned when this process may have too few files open at once to serve any client.
var ErrLimits = errors.New("the limit of open files is too low")

// CheckLimits returns ErrLimits if this process cannot be a bakeryd.
func CheckLimits() error {
	if n := openFiles(); n < leastDescriptors {
		return fmt.Errorf("%w: %d, want at least %d, and one or two more for each client: see ulimit -n, or LimitNOFILE= of the unit",
			ErrLimits, n, leastDescriptors)
	}
	return nil
}

// openFiles is how many this process may have open at once. Go raises the limit as far as it may be when a program starts.
func openFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return leastDescriptors // to be the one who is wrong costs less than not to start
	}
	return int(min(limit.Cur, 1<<30))
}

// descriptors are what clients may use of this process's. No user has more than a part of them, and
// some are reserved for root and bakeryd's own user, which can always see what is wrong, and act on
// it.
type descriptors struct {
	limit   int
	share   int                // of one user at most
	reserve int                // for the privileged
	own     func(uid int) bool // reports whether a user is privileged; nil: none is
	of      *descriptors       // what they are a part of; nil: of none

	mu     sync.Mutex // guards the rest
	used   int
	byUser map[int]int
	conns  map[net.Conn]int // whose each connection is
}

var clientDescriptors = sync.OnceValue(func() *descriptors {
	rules := accessRules()
	return newDescriptors(openFiles()-ownDescriptors, func(uid int) bool { return rules.Privileged(access.Caller{UID: uid}) })
})

func newDescriptors(limit int, own func(uid int) bool) *descriptors {
	return &descriptors{limit: limit, share: max(limit/4, 4), reserve: limit / 8, own: own, byUser: map[int]int{}, conns: map[net.Conn]int{}}
}

// forLooking are those of who comes by an address, as any user of this machine may: they leave most of them to the others.
func (d *descriptors) forLooking() *descriptors {
	limit := max(1, min(mostLooking, d.limit/4))
	return &descriptors{limit: limit, share: limit, of: d, byUser: map[int]int{}, conns: map[net.Conn]int{}}
}

// unknownUser is the user of a client that comes by an address.
const unknownUser = -1

// take returns nil if there is one left for a user, or why there is none.
func (d *descriptors) take(uid int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch privileged := d.own != nil && d.own(uid); {
	case d.used >= d.limit:
		return d.exhausted()
	case privileged:
	case d.used >= d.limit-d.reserve:
		return fmt.Errorf("%w: clients have all %d file descriptors that are for users other than root", api.ErrOverload, d.limit-d.reserve)
	case d.byUser[uid] >= d.share && uid != unknownUser:
		return fmt.Errorf("%w: user %d has the %d file descriptors that one user may have", api.ErrOverload, uid, d.share)
	}
	if d.of != nil {
		if err := d.of.take(uid); err != nil {
			return err
		}
	}
	d.used++
	d.byUser[uid]++
	return nil
}

// must takes one for what cannot be refused any more.
func (d *descriptors) must(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used++
	d.byUser[uid]++
}

func (d *descriptors) give(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used--
	if d.byUser[uid]--; d.byUser[uid] == 0 {
		delete(d.byUser, uid)
	}
	if d.of != nil {
		d.of.give(uid)
	}
}

// takeFor takes one for a connection.
func (d *descriptors) takeFor(conn net.Conn) error {
	uid := unknownUser
	if c, ok := conn.(*net.UnixConn); ok {
		uid = userOf(c)
	}
	err := d.take(uid)
	if err == nil {
		d.mu.Lock()
		d.conns[conn] = uid
		d.mu.Unlock()
	}
	return err
}

// giveBack gives back that of a connection.
func (d *descriptors) giveBack(conn net.Conn) {
	d.mu.Lock()
	uid, ok := d.conns[conn]
	delete(d.conns, conn)
	d.mu.Unlock()
	if ok {
		d.give(uid)
	}
}

func (d *descriptors) exhausted() error {
	return fmt.Errorf("%w: clients have all %d file descriptors that are for them", api.ErrOverload, d.limit)
}

// doorkeeper accepts connections as long as there are descriptors for them, and tells the others so.
type doorkeeper struct {
	net.Listener
	log         *slog.Logger
	descriptors *descriptors
	tally       *tally.Tally
	refused     chan struct{} // has one for each client that is being refused
	failing     limiter       // of the one goroutine that accepts, as full is
	full        limiter
}

func newDoorkeeper(ln net.Listener, s *Server, d *descriptors) *doorkeeper {
	return &doorkeeper{Listener: ln, log: s.log, descriptors: d, tally: s.tally, refused: make(chan struct{}, refusing)}
}

// Accept returns a connection that has taken a descriptor. After an error net/http waits a little before it tries again.
func (k *doorkeeper) Accept() (net.Conn, error) {
	for {
		conn, err := k.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) && k.failing.allow() {
				k.log.Warn("accepting a connection failed, retrying", "err", err)
			}
			return nil, err
		}
		err = k.descriptors.takeFor(conn)
		if err == nil {
			return conn, nil
		}
		if k.full.allow() {
			k.log.Warn("too many clients, refusing one", "descriptors", k.descriptors.limit, "err", err)
		}
		select {
		case k.refused <- struct{}{}:
			go func() {
				k.refuse(conn, err, refusalPatience)
				<-k.refused
			}()
		default:
			k.refuse(conn, err, 0)
		}
	}
}

// refuse tells a client that it cannot be served. One that is still writing its request as the connection is closed
// does not get to read the answer, so it is waited for.
func (k *doorkeeper) refuse(conn net.Conn, why error, patience time.Duration) {
	defer conn.Close()
	e := api.ErrorOf(why)
	k.tally.Refused.Add(e.Code)
	body, err := json.Marshal(map[string]*api.Error{"error": e})
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(max(patience, 100*time.Millisecond))) // what is written has room
	_, err = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), len(body), body)
	if c, ok := conn.(*net.UnixConn); ok && err == nil && patience > 0 {
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 2*maxBody))
	}
}

// count gives a descriptor back when HTTP is done with its connection. One that has become a link gives it back itself.
func (d *descriptors) count(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		d.giveBack(conn)
	}
}
