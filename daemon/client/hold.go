package client

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/layout"
)

const (
	// stopped is how late the alarm is at most while this process runs. An alarm later than that says that
	// the process stood still, and bakeryd's latest events may be unread.
	stopped = 100 * time.Millisecond

	// catchUp is how long reading them may take.
	catchUp = 250 * time.Millisecond

	// firstInherited is above the descriptors that a shell lets scripts choose: one that opens 3 for itself
	// must not close the connection by that.
	firstInherited = 10
)

// Hold is a lock that bakeryd granted. The lock is held as long as the connection is open in any process,
// so until Unlock, or, after Inherit, until every process that inherited it has gone as well. A Hold may be
// used from several goroutines.
type Hold struct {
	Name string
	Mode layout.Mode

	token  layout.Ticket
	hostID int
	conn   *net.UnixConn
	stream *stream
	alarm  *alarm
	lost   chan struct{} // closed when err is set
	done   chan struct{} // closed by Unlock
	unlock func() error
	tasks  sync.WaitGroup // reads the events, waits for the alarm

	mu     sync.Mutex    // guards what follows
	until  time.Duration // deadline, on boottime
	err    error
	closed bool
}

func newHold(conn *net.UnixConn, s *stream, granted event) (*Hold, error) {
	until := boottime() + granted.lease()
	a, err := newAlarm()
	if err != nil {
		return nil, err
	}
	if err := a.set(until); err != nil {
		a.close()
		return nil, err
	}
	h := &Hold{
		Name: granted.Name, Mode: granted.Mode, token: granted.Token, hostID: granted.HostID,
		conn: conn, stream: s, alarm: a, until: until,
		lost: make(chan struct{}), done: make(chan struct{}),
	}
	h.unlock = sync.OnceValue(h.close)
	return h, nil
}

func (h *Hold) start() {
	h.tasks.Go(h.read)
	h.tasks.Go(h.watch)
}

// Token returns the fencing token of the hold.
func (h *Hold) Token() layout.Ticket { return h.token }

// HostID returns the id of this host in the lockspace.
func (h *Hold) HostID() int { return h.hostID }

// Deadline returns the moment at which the lease ends. It moves with every renewal, and with the time that
// the machine sleeps, so ask anew rather than keep it.
//
// It is counted from when the event was received, so it is too late by the time that the event was on its
// way: microseconds, unless this process was stopped.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.until - boottime())
}

// Lost is closed when the hold is lost: bakeryd said so, the deadline passed without a renewal, or the
// connection broke. In the last case other hosts still wait until the deadline. Unlock does not close it.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Err returns why the hold was lost, an ErrLost, or nil.
func (h *Hold) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Unlock closes this process's descriptor of the connection. If no other process has one, the lock is
// released.
func (h *Hold) Unlock() error { return h.unlock() }

func (h *Hold) close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	close(h.done)
	h.alarm.close()
	err := h.conn.Close()
	h.tasks.Wait()
	if err != nil {
		return fmt.Errorf("close the connection to bakeryd: %w", err)
	}
	return nil
}

// Descriptor is an open file descriptor that commands inherit.
type Descriptor int

// Close closes the descriptor in this process.
func (d Descriptor) Close() error { return unix.Close(int(d)) }

// Inherit returns a duplicate of the connection's descriptor that every command started before it is closed
// inherits, and so holds the lock too. Its number is at least 10. It shares its file status flags with the
// connection, so it must not be made blocking.
func (h *Hold) Inherit() (Descriptor, error) {
	raw, err := h.conn.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("duplicate the connection to bakeryd: %w", err)
	}
	var fd int
	var dupErr error
	err = raw.Control(func(conn uintptr) { fd, dupErr = unix.FcntlInt(conn, unix.F_DUPFD, firstInherited) })
	if err = errors.Join(err, dupErr); err != nil {
		return -1, fmt.Errorf("duplicate the connection to bakeryd: %w", err)
	}
	return Descriptor(fd), nil
}

// read follows the events until the hold is lost or let go.
func (h *Hold) read() {
	for {
		e, err := h.stream.next()
		switch {
		case err != nil:
			h.lose(err)
			return
		case e.Kind == eventLost:
			h.lose(errors.New(e.Message))
			return
		case e.Kind == eventRenewed:
			h.renew(boottime() + e.lease())
		}
	}
}

// renew moves the deadline. A hold once lost stays so.
func (h *Hold) renew(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil || h.closed {
		return
	}
	h.until = until
	if err := h.alarm.set(until); err != nil {
		h.loseLocked(err) // without an alarm nobody would notice the end of the lease
	}
}

// watch waits for the deadline. It does no IO but for the alarm, so nothing that bakeryd does holds it up.
func (h *Hold) watch() {
	for h.alarm.wait() == nil {
		if h.remaining() < -stopped {
			select {
			case <-time.After(catchUp):
			case <-h.lost:
			case <-h.done:
			}
		}
		h.mu.Lock()
		if h.until <= boottime() {
			h.loseLocked(errors.New("the lease ended without a renewal"))
		}
		over := h.err != nil
		h.mu.Unlock()
		if over {
			return
		}
	}
}

func (h *Hold) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until - boottime()
}

func (h *Hold) lose(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loseLocked(why)
}

func (h *Hold) loseLocked(why error) {
	if h.err != nil || h.closed {
		return
	}
	h.err = fmt.Errorf("%w: %w", ErrLost, why)
	close(h.lost)
}
