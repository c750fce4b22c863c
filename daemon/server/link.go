package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/daemon/rawio"
	"github.com/bakeryd/bakeryd/daemon/server/body"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/daemon/wire"
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
//
// These are all system calls of bakeryd for one lock and unlock, in the order of their cost, as strace
// counts them: by a client alone, and when eight clients of the host pass the lock on.
//
//	              alone  passed on
//	pwrite, pread   3      0.3   slots: the claim, the others, the release; the others at each 7th grant,
//	                             or earlier if reads take longer, as under strace
//	write           2      2     granted and released, which wake the client
//	epoll_pwait     3      2.6   the runtime waits for lines, and looks for some before a thread sleeps
//	futex           0.6    0.9   the runtime's threads wake each other
//	read            2.5    3.2   lines; one that finds none, before the goroutine waits
//	nanosleep       2.3    0.3   the runtime's monitor, while a thread may wait for the disk
//	clock_gettime   9      2.5   CLOCK_BOOTTIME: the lease, before each request and in each answer
//
// Not on the path: a session is recorded by stores to memory (handover), and events are written in
// batches (events).
type link struct {
	*wire.Link
	conn   *net.UnixConn
	in     *line.Reader
	by     *caller
	client session.Client      // what a session knows of it
	lock   *session.Attachment // last lock requested; nil if none
}

// linkRequest is a line of the client: one of its members.
type linkRequest struct {
	Lock    *api.LockRequest `json:"lock"`    // request of a lock
	Confirm *layout.Ticket   `json:"confirm"` // token of the grant
	Unlock  *layout.Ticket   `json:"unlock"`  // token of the hold
}

func (s *Server) link(w http.ResponseWriter, r *http.Request) {
	conn := callerOf(r).socket()
	if conn == nil || r.Header.Get("Upgrade") != linkProtocol || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
		w.Header().Set("Upgrade", linkProtocol)
		writeError(w, http.StatusUpgradeRequired, &api.Error{Code: api.CodeInvalid, Message: "a link is an upgrade to " + linkProtocol,
			Hint: "the guide api.md shows how to ask for one"})
		return
	}
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, err)
		return
	}
	// From here on the link must give its descriptor back. In a goroutine, so that HTTP frees its
	// state of the connection.
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	go newLink(callerOf(r), conn, early).serve()
}

func newLink(by *caller, conn *net.UnixConn, early []byte) *link {
	return &link{Link: wire.NewLink(conn, by.srv.cfg.IdleLink, &by.srv.cfg.Tally.Refused), by: by, client: by.client(), conn: conn,
		in: line.NewReader(rawio.NewReader(conn), early, maxBody)}
}

const linkAccepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + linkProtocol + "\r\n\r\n"

// serve answers the client until it is gone or the server shuts down.
func (l *link) serve() {
	stop := context.AfterFunc(l.by.srv.links, l.Close)
	defer stop()
	defer l.end()
	if l.by.srv.links.Err() != nil {
		return // the server has shut down meanwhile
	}
	l.Begin(linkAccepted)
	for goOn := true; goOn; {
		if !l.busy() {
			l.Idle()
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

// end ends the link and its part in a session.
func (l *link) end() {
	l.Close()
	l.by.srv.cfg.Descriptors.GiveFor(l.conn)
	if l.lock != nil {
		l.lock.Leave()
	}
}

// busy reports whether a lock is held or waited for.
func (l *link) busy() bool { return l.lock != nil && !l.lock.Over() }

// answer executes a line. It returns false if the link must end.
func (l *link) answer(text []byte) (goOn bool) {
	var r linkRequest
	unknown, err := r.parse(text)
	if warning := l.by.srv.ignored("GET "+linkPath, l.by, unknown); warning != "" {
		l.Send(&api.Event{Kind: api.Warning, Message: warning})
	}
	switch {
	case err != nil:
	case r.Lock != nil:
		err = l.request(*r.Lock)
	case l.lock == nil:
		err = session.ErrNotHeld(*cmp.Or(r.Confirm, r.Unlock))
	case r.Confirm != nil:
		err = l.lock.Confirm(*r.Confirm)
	default:
		err = l.unlock(*r.Unlock)
	}
	return err == nil || l.refuse(err)
}

// request requests a lock. Its session sends the outcome.
func (l *link) request(body api.LockRequest) error {
	if l.busy() {
		return fmt.Errorf("%w: a link takes one lock at a time", api.ErrInvalid)
	}
	l.Busy()
	if err := session.Validate(&body); err != nil {
		return err
	}
	host, err := l.by.srv.cfg.Host()
	switch {
	case errors.Is(err, api.ErrUnavailable):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	}
	l.lock, err = host.Sessions().Open(body, l.client, l.Link)
	if err != nil {
		return l.by.notOwn(err, access.Lock)
	}
	l.lock.Start()
	return nil
}

// unlock releases a hold. It returns when that is durable.
func (l *link) unlock(token layout.Ticket) error {
	kept, err := l.lock.Unlock(token)
	if err != nil {
		return err
	}
	l.lock = nil
	e := api.Event{Kind: api.Released}
	if kept {
		e.Kind = api.Kept // by processes that the client has left
	}
	l.Send(&e)
	return nil
}

// refuse sends why a line was refused. It returns false if the client could take that for the
// answer to another line.
func (l *link) refuse(err error) (goOn bool) {
	goOn = !l.busy()
	l.Send(new(api.Refusal(api.ErrorOf(err))))
	return goOn
}

// parse parses a line. It returns the names of members that are ignored.
func (r *linkRequest) parse(text []byte) (unknown []string, err error) {
	if r.parsePlain(text) {
		return nil, nil
	}
	return r.parseJSON(text)
}

// parseJSON is parse for any line.
func (r *linkRequest) parseJSON(text []byte) (unknown []string, err error) {
	*r = linkRequest{}
	var line struct {
		Lock    json.RawMessage `json:"lock"`
		Confirm *layout.Ticket  `json:"confirm"`
		Unlock  *layout.Ticket  `json:"unlock"`
	}
	if unknown, err = body.Decode(text, &line); err != nil {
		return nil, err
	}
	if r.Confirm, r.Unlock = line.Confirm, line.Unlock; len(line.Lock) > 0 && string(line.Lock) != "null" {
		r.Lock = new(api.LockRequest)
		of, err := body.Decode(line.Lock, r.Lock)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, of...)
	}
	given := []bool{r.Lock != nil, r.Confirm != nil, r.Unlock != nil}
	if first := slices.Index(given, true); first < 0 || slices.Contains(given[first+1:], true) {
		return nil, fmt.Errorf("%w: want one of lock, confirm and unlock", api.ErrInvalid)
	}
	return unknown, nil
}

// parsePlain parses a line as package client writes it. It returns false for all others.
func (r *linkRequest) parsePlain(text []byte) bool {
	if body, ok := bytes.CutPrefix(text, []byte(`{"lock":`)); ok && bytes.HasSuffix(body, []byte("}")) {
		r.Lock = new(api.LockRequest)
		return r.Lock.ReadPlain(body[:len(body)-1])
	}
	into, name := &r.Unlock, `"unlock":`
	if bytes.HasPrefix(text, []byte(`{"confirm":`)) {
		into, name = &r.Confirm, `"confirm":`
	}
	*into = new(layout.Ticket)
	o := line.Read(text)
	line.Quoted(&o, name, *into, false)
	return o.Done()
}
