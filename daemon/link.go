package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// linkProtocol is the protocol that GET /v1/link is upgraded to.
const (
	linkProtocol = "bakery-link/1"
	linkPath     = "/v1/link"
)

// link is a connection by which a client takes locks one after the other. It ends with its
// connection, as a stream does. In addition the client can release its hold by a line and then
// request the next lock.
//
// One goroutine reads lines, requests locks and releases them, and may block on the device for
// that. Therefore other goroutines write the lines that must be sent in time: the outcome of a
// request by the goroutine that decides it, all others by tell.go. No goroutine ever waits for a
// client that does not read.
type link struct {
	srv  *Server
	conn *net.UnixConn
	raw  syscall.RawConn
	in   *line.Reader
	id   process.ID // process that connected
	uid  int        // its user
	by   *caller    // with its groups

	// mu guards the fields below, and writing. A goroutine that needs both takes session.mu first.
	// With it held, only mu of the lease is acquired.
	mu      sync.Mutex
	f       *follower     // in the current session; nil if none
	granted bool          // the grant was sent
	confirm *time.Timer   // passes on an unconfirmed grant; nil if it is confirmed or need not be
	told    time.Duration // the deadline that was sent
	changes uint64        // number of changes of the mode that were sent

	out    []byte                // written by write
	write  func(fd uintptr) bool // sets sent and failed
	sent   int
	failed error
}

// linkRequest is a line of the client: one of its members.
type linkRequest struct {
	Lock    *lockRequest   `json:"lock"`
	Confirm *layout.Ticket `json:"confirm"` // token of the grant
	Unlock  *layout.Ticket `json:"unlock"`  // token of the hold
}

func (s *Server) link(w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(*net.UnixConn)
	if conn == nil || r.Header.Get("Upgrade") != linkProtocol || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
		w.Header().Set("Upgrade", linkProtocol)
		writeError(w, http.StatusUpgradeRequired, &api.Error{Code: "invalid", Message: "a link is an upgrade to " + linkProtocol,
			Hint: "the guide api.md shows how to ask for one"})
		return
	}
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, http.StatusInternalServerError, api.ErrorOf(err))
		return
	}
	// From here on the link must give its descriptor back.
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	l, err := newLink(callerOf(r), conn, early)
	if err != nil || !s.links.add(l) {
		conn.Close()
		s.descriptors.GiveFor(conn)
		return
	}
	go l.serve() // in a goroutine, so that HTTP frees its state of the connection
}

func newLink(by *caller, conn *net.UnixConn, early []byte) (*link, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &link{srv: by.srv, by: by, conn: conn, raw: raw, in: line.NewReader(conn, early, maxBody)}
	if l.id, l.uid = peer.Of(conn); l.uid < 0 {
		return nil, net.ErrClosed
	}
	l.write = func(fd uintptr) bool {
		l.sent, l.failed = unix.Write(int(fd), l.out)
		return true // even if the buffer is full
	}
	return l, nil
}

func (l *link) peer() (process.ID, int) { return l.id, l.uid }

func (l *link) caller() *caller { return l.by }

func (l *link) gone() bool { return peer.HungUp(l.conn) }

func (l *link) listening() bool { return peer.Listening(l.conn) }

func (l *link) follower() *follower { return &follower{link: l} }

// hangUp ends the link, and with it its hold.
func (l *link) hangUp() { _ = l.conn.Close() }

// bind makes a session the current one of the link. Called with the session's mu held.
func (l *link) bind(s *session, f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.session = s
	l.f, l.granted = f, false
}

// unbind removes the current session and returns its follower, nil if none.
func (l *link) unbind() *follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.f
	l.f, l.granted = nil, false
	l.stopConfirm()
	return f
}

// idleLink is how long a link may be open without a lock. Package client closes it sooner.
const idleLink = time.Minute

const linkAccepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + linkProtocol + "\r\n\r\n"

// serve answers the client until it is gone.
func (l *link) serve() {
	defer l.end()
	l.mu.Lock()
	l.out = append(l.out, linkAccepted...)
	l.flush()
	l.mu.Unlock()
	for goOn := true; goOn; {
		if l.bound() == nil {
			l.idles()
		}
		text, err := l.in.Next()
		switch {
		case errors.Is(err, line.ErrTooLong):
			l.refuse(fmt.Errorf("%w: a line of more than %d bytes", api.ErrInvalid, maxBody))
			return
		case err != nil:
			return
		}
		goOn = l.answer(text)
	}
}

// idles ends the link if no lock is requested within idleLink.
func (l *link) idles() {
	_ = l.conn.SetReadDeadline(time.Now().Add(l.srv.idleLink)) // fails only once closed
}

// end ends the link and its session's connection.
func (l *link) end() {
	l.hangUp()
	l.srv.descriptors.GiveFor(l.conn)
	l.srv.links.remove(l)
	if f := l.unbind(); f != nil {
		f.session.leave(f)
	}
}

// answer executes a line. It returns false if the link must end.
func (l *link) answer(text []byte) (goOn bool) {
	var r linkRequest
	err := r.parse(text)
	switch {
	case err != nil:
	case r.Lock != nil:
		err = l.lock(*r.Lock)
	case r.Confirm != nil:
		err = l.confirmed(*r.Confirm)
	default:
		err = l.unlock(*r.Unlock)
	}
	return err == nil || l.refuse(err)
}

// lock requests a lock. decided sends the outcome.
func (l *link) lock(body lockRequest) error {
	if l.bound() != nil {
		return fmt.Errorf("%w: a link takes one lock at a time", api.ErrInvalid)
	}
	_ = l.conn.SetReadDeadline(time.Time{})
	if err := body.validate(); err != nil {
		return err
	}
	host, err := l.srv.joined()
	switch {
	case errors.Is(err, api.ErrUnavailable):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	}
	host.sessions.tellLinks()
	s, f, err := host.sessions.open(body, l)
	if err != nil {
		l.unbind()
		return err
	}
	if f.late {
		l.decided(s, f)
	}
	s.start()
	return nil
}

func (l *link) bound() *follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f
}

// unlock releases a hold. It returns when that is durable.
func (l *link) unlock(token layout.Ticket) error {
	l.mu.Lock()
	f := l.f
	if f == nil || !l.granted || f.session.hold.Token() != token {
		l.mu.Unlock()
		return fmt.Errorf("%w: the link holds no lock by token %v", api.ErrLost, token)
	}
	l.f, l.granted = nil, false
	l.stopConfirm()
	_ = l.conn.SetReadDeadline(time.Time{}) // of the end of the lease; fails only once closed
	l.mu.Unlock()
	e := api.Event{Kind: api.Released}
	if f.session.leave(f) {
		e.Kind = api.Kept // by processes that the client has left
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(&e)
	return nil
}

// refuse sends why a line was refused. It returns false if the client could take that for the
// answer to another line.
func (l *link) refuse(err error) (goOn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putRefusal(err)
	return l.f == nil
}

// decided sends the outcome of a request to the client.
func (l *link) decided(s *session, f *follower) {
	if s.err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.f == f {
			l.f = nil
			l.idles()
			l.putRefusal(s.err)
		}
		return
	}
	ss, token := s.all, s.hold.Token()
	mode, changes := s.hold.ModeAndChanges()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != f {
		return
	}
	m, now := ss.mem.Moments(), ss.clock.Now()
	if m.Lost || now >= m.Deadline { // this process did not run since the grant
		l.f = nil
		l.putRefusal(fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost))
		s.all.tasks.Go(func() { s.leave(f) })
		return
	}
	l.granted, l.told, l.changes = true, m.Deadline, changes
	if f.confirms {
		l.confirm = time.AfterFunc(l.srv.confirmWithin(ss.times().Lease), func() { l.passOn(f) })
	}
	e := s.granted(mode, token, changes).Until(now, m.Deadline)
	l.put(&e)
	select {
	case <-ss.ending.drained:
		l.put(&api.Event{Kind: api.Lost, Message: ss.ending.drainedFor})
	default:
	}
}

// confirmWithin returns how long a client may take to confirm a grant. A client that does not run
// must not hold a lock.
func confirmWithin(lease time.Duration) time.Duration { return min(2*time.Second, lease/6) }

// confirmed handles the confirmation of a grant.
func (l *link) confirmed(token layout.Ticket) error {
	over := fmt.Errorf("%w: the link holds no lock by token %v", api.ErrLost, token)
	f := l.bound()
	if f == nil {
		return over
	}
	s := f.session
	weak := s.Uncontainable()
	if !l.acceptConfirmation(f, token) {
		return over
	}
	s.Saved()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != f {
		return over
	}
	e := api.Event{Kind: api.Confirmed, Message: weak}.Until(s.all.clock.Now(), s.all.mem.Moments().Deadline)
	l.put(&e)
	return nil
}

// acceptConfirmation returns false if the link does not hold a lock by token.
func (l *link) acceptConfirmation(f *follower, token layout.Ticket) bool {
	s := f.session
	s.mu.Lock()
	defer s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != f || s.follower != f || !l.granted || s.hold.Token() != token {
		return false
	}
	l.stopConfirm()
	s.confirmed()
	return true
}

// stopConfirm stops the timer. Called with mu held.
func (l *link) stopConfirm() {
	if l.confirm != nil {
		l.confirm.Stop()
		l.confirm = nil
	}
}

// passOn releases the lock for the next client, because this one did not confirm the grant.
func (l *link) passOn(f *follower) {
	l.mu.Lock()
	if l.f != f || l.confirm == nil {
		l.mu.Unlock()
		return
	}
	l.f, l.granted, l.confirm = nil, false, nil
	l.idles()
	l.putRefusal(api.ErrUnconfirmed)
	l.mu.Unlock()
	s := f.session
	s.all.log.Warn("client does not run, passing its lock on", "lock", s.req.Name, "token", s.hold.Token(), "pid", s.req.PID)
	s.abandon(f, "its client did not run when it was granted")
}

// putRefusal sends a refusal. Called with mu held, as are put and flush.
func (l *link) putRefusal(err error) {
	e := api.ErrorOf(err)
	l.srv.tally.Refused.Add(e.Code)
	l.put(new(api.Refusal(e)))
}

func (l *link) put(e *api.Event) {
	l.out = e.Append(l.out[:0])
	l.flush()
}

// flush writes out immediately, or ends the link: a client that leaves a full buffer unread
// requests more than it reads.
func (l *link) flush() {
	for {
		err := l.raw.Write(l.write)
		if err == nil && errors.Is(l.failed, unix.EINTR) {
			continue
		}
		if err != nil || l.failed != nil || l.sent < len(l.out) {
			l.hangUp()
		}
		return
	}
}

// parse parses a line.
func (r *linkRequest) parse(text []byte) error {
	if r.parsePlain(text) {
		return nil
	}
	*r = linkRequest{}
	if err := decodeBody(bytes.NewReader(text), r); err != nil {
		return err
	}
	given := 0
	for _, is := range []bool{r.Lock != nil, r.Confirm != nil, r.Unlock != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("%w: want one of lock, confirm and unlock", api.ErrInvalid)
	}
	return nil
}

// parsePlain parses a line as package client writes it. It returns false for all others.
func (r *linkRequest) parsePlain(text []byte) bool {
	if body, ok := bytes.CutPrefix(text, []byte(`{"lock":`)); ok && bytes.HasSuffix(body, []byte("}")) {
		r.Lock = new(lockRequest)
		return line.Members(body[:len(body)-1], r.Lock.set)
	}
	return line.Members(text, func(name, value []byte) bool {
		token := new(layout.Ticket)
		switch string(name) {
		case "unlock":
			r.Unlock = token
		case "confirm":
			r.Confirm = token
		default:
			return false
		}
		text, ok := line.Bytes(value)
		return ok && token.UnmarshalText(text) == nil
	}) && (r.Confirm == nil) != (r.Unlock == nil)
}

// set sets one member.
func (r *lockRequest) set(name, value []byte) bool {
	switch string(name) {
	case "name":
		return line.Text(value, &r.Name)
	case "mode":
		text, ok := line.Bytes(value)
		return ok && r.Mode.UnmarshalText(text) == nil
	case "nonblock":
		return line.Bool(value, &r.NonBlock)
	case "timeout_ms":
		return line.Int(value, &r.TimeoutMS)
	case "permits":
		return line.Int(value, &r.Permits)
	case "pid":
		return line.Int(value, &r.PID)
	case "command":
		return line.Text(value, &r.Command)
	case "session":
		return line.Text(value, &r.Session)
	case "token":
		text, ok := line.Bytes(value)
		return ok && r.Token.UnmarshalText(text) == nil
	case "witness":
		return line.Bool(value, &r.Witness)
	case "confirm":
		return line.Bool(value, &r.Confirm)
	case "requests":
		return line.Bool(value, &r.Requests)
	}
	return false
}

// links are the open links of a server.
type links struct {
	mu     sync.Mutex // guards the rest
	open   map[*link]struct{}
	closed bool
}

// add adds a link. It returns false once the links are closed.
func (ls *links) add(l *link) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	if ls.open == nil {
		ls.open = map[*link]struct{}{}
	}
	ls.open[l] = struct{}{}
	return true
}

func (ls *links) remove(l *link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.open, l)
}

// close ends all links.
func (ls *links) close() {
	ls.mu.Lock()
	ls.closed = true
	open := slices.Collect(maps.Keys(ls.open))
	ls.mu.Unlock()
	for _, l := range open {
		l.hangUp()
	}
}
