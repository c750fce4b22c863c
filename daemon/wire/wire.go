// Package wire sends events to the clients that wait for locks or hold them. Nothing in it blocks, so
// that a session can send with its mutex held: its client hears of changes in their order.
package wire

import (
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// Link is a connection on which each event is a line, written immediately.
type Link struct {
	conn    *net.UnixConn
	raw     syscall.RawConn
	idle    time.Duration // how long it may be open without a lock
	refused *tally.Codes

	mu     sync.Mutex            // guards the fields below, and writing
	out    []byte                // written by write
	write  func(fd uintptr) bool // sets sent and failed
	sent   int
	failed error
}

// NewLink returns a link that ends after idle without a lock, and that counts refusals.
func NewLink(conn *net.UnixConn, idle time.Duration, refused *tally.Codes) *Link {
	raw, _ := conn.SyscallConn() // fails only for a connection that was never made
	l := &Link{conn: conn, raw: raw, idle: idle, refused: refused}
	l.write = func(fd uintptr) bool {
		l.sent, l.failed = unix.Write(int(fd), l.out)
		for l.failed == unix.EINTR {
			l.sent, l.failed = unix.Write(int(fd), l.out)
		}
		return true // even if the buffer is full
	}
	return l
}

// Gone reports whether the client has closed its end.
func (l *Link) Gone() bool { return peer.HungUp(l.conn) }

// Listening reports whether the client reads what it is sent.
func (l *Link) Listening() bool { return peer.Listening(l.conn) }

// Close ends the connection.
func (l *Link) Close() { _ = l.conn.Close() }

// Idle ends the connection if no lock is requested in time.
func (l *Link) Idle() {
	_ = l.conn.SetReadDeadline(time.Now().Add(l.idle)) // fails only once closed
}

// Busy removes that limit.
func (l *Link) Busy() { _ = l.conn.SetReadDeadline(time.Time{}) }

// Begin writes the text before the first event.
func (l *Link) Begin(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = append(l.out[:0], text...)
	l.flush()
}

// Send sends an event. After a refusal the connection may begin another session.
func (l *Link) Send(e *api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind == api.Refused {
		l.refused.Add(e.Code)
		l.Idle()
	}
	l.out = e.Append(l.out[:0])
	l.flush()
}

// flush writes out immediately, or ends the link: a client that leaves a full buffer unread
// requests more than it reads.
func (l *Link) flush() {
	if err := l.raw.Write(l.write); err != nil || l.failed != nil || l.sent < len(l.out) {
		l.Close()
	}
}

// maxUnsent is the number of events for a stream that are not written yet. More are not: a client
// that does not read is sent few.
const maxUnsent = 16

// Stream is a connection on which another goroutine writes the events.
type Stream struct {
	conn   *net.UnixConn
	Events chan api.Event
	end    func()
}

// NewStream returns a stream that is ended by end, which does not block.
func NewStream(conn *net.UnixConn, end func()) *Stream {
	return &Stream{conn: conn, Events: make(chan api.Event, maxUnsent), end: end}
}

// Gone reports whether the client has closed its end.
func (st *Stream) Gone() bool { return peer.HungUp(st.conn) }

// Listening reports whether the client reads what it is sent.
func (st *Stream) Listening() bool { return peer.Listening(st.conn) }

// Close ends the stream.
func (st *Stream) Close() { st.end() }

// Send leaves an event to the goroutine that writes.
func (st *Stream) Send(e *api.Event) {
	select {
	case st.Events <- *e:
	default:
		st.Close()
	}
}
