// Package wire sends events to the clients that wait for locks or hold them. Nothing in it blocks, so
// that a session can send with its mutex held: its client hears of changes in their order.
package wire

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/rawio"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// Link is a connection on which each event is a line, written immediately.
type Link struct {
	conn    *net.UnixConn
	raw     syscall.RawConn
	maxIdle time.Duration // how long it may be open without a lock
	refused *tally.Codes
	timer   *time.Timer // calls overdue

	mu        sync.Mutex       // guards the fields below, and writing
	out       []byte           // written by write
	write     func(fd uintptr) // sets sent and failed
	sent      int
	failed    error
	idleSince time.Time // zero while a lock is waited for or held
	armed     bool      // timer runs
}

// NewLink returns a link that ends after maxIdle without a lock, and that counts refusals.
func NewLink(conn *net.UnixConn, maxIdle time.Duration, refused *tally.Codes) *Link {
	raw, _ := conn.SyscallConn() // fails only for a connection that was never made
	l := &Link{conn: conn, raw: raw, maxIdle: maxIdle, refused: refused, idleSince: time.Now(), armed: true}
	l.write = func(fd uintptr) { l.sent, l.failed = rawio.Write(fd, l.out) }
	l.mu.Lock()
	defer l.mu.Unlock() // overdue uses timer
	l.timer = time.AfterFunc(maxIdle, l.overdue)
	return l
}

// Gone reports whether the client has closed its end.
func (l *Link) Gone() bool { return peer.HungUp(l.conn) }

// Listening reports whether the client reads what it is sent.
func (l *Link) Listening() bool { return peer.Listening(l.conn) }

// Close ends the connection.
func (l *Link) Close() {
	l.timer.Stop()
	_ = l.conn.Close()
}

// Idle ends the connection if no lock is requested in time.
func (l *Link) Idle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest()
}

// rest is Idle with mu held. A timer that runs is left alone: most links are busy again soon.
func (l *Link) rest() {
	l.idleSince = time.Now()
	if !l.armed {
		l.armed = true
		l.timer.Reset(l.maxIdle)
	}
}

// Busy removes that limit.
func (l *Link) Busy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idleSince = time.Time{}
}

func (l *Link) overdue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	if l.idleSince.IsZero() {
		return
	}
	if left := l.maxIdle - time.Since(l.idleSince); left > 0 {
		l.armed = true
		l.timer.Reset(left)
		return
	}
	l.Close()
}

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
		l.rest()
	}
	l.out = e.Append(l.out[:0])
	l.flush()
}

// flush writes out immediately, or ends the link: a client that leaves a full buffer unread
// requests more than it reads.
func (l *Link) flush() {
	if err := l.raw.Control(l.write); err != nil || l.failed != nil || l.sent < len(l.out) {
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
