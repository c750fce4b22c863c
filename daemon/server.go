package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

const (
	maxBody = 16 << 10 // bytes of a request

	// A client may take so long over its request, over the answer to one that is answered at once, and over the next one.
	requestPatience = 10 * time.Second
	answerPatience  = 30 * time.Second
	idlePatience    = 2 * time.Minute
)

// Server serves a daemon's locks over HTTP on a Unix socket. A lock is held as
// long as the connection is open that asked for it, in whatever process.
//
//	POST /v1/lock     a lockRequest; answers with a stream of lines (stream.go)
//	GET  /v1/link     upgrades to lines both ways, for one lock after the other (link.go)
//	POST /v1/create   a createRequest; answers with a createAnswer (lockcalls.go)
//	POST /v1/remove   a removeRequest; answers with a removeAnswer
//	GET  /v1/locks    a LockList
//	GET  /v1/status   a Report
//	POST /v1/request  a requestRequest; answers with a requestAnswer (request.go)
//	POST /v1/mode     a modeRequest; changes a hold, answers with a modeAnswer (mode.go)
//	POST /v1/value    a valueRequest; answers with the lock's name and the token (value.go)
//	GET  /v1/value    ?name=NAME; answers with a Value
//	POST /v1/evict    an evictRequest; answers with an evictAnswer (evict.go)
//	POST /v1/meet     a meetRequest; answers with a MeetReport (meet.go)
//	POST /v1/floor    a floorRequest; answers with a Floor (floor.go)
//	GET  /            the status page (package page); it asks for /page/status, a Glance (glance.go)
//	GET  /v1/events   lines of events.Event, also while the host joins (eventstream.go)
//	GET  /metrics     what Measure was given
//
// Errors are {"error": {"code", "message", "hint"}}. Who may make which call is in calls.go and package access.
type Server struct {
	joined func() (*Daemon, error) // the daemon of the term in force, or why there is none
	log    *slog.Logger
	events *events.Log // nil: none
	http   *http.Server
	links  links

	idleLink      time.Duration                           // how long a link may be open without a lock
	confirmWithin func(lease time.Duration) time.Duration // how long a client may take to confirm a grant

	looking   *http.Server // read-only, for clients known by an address alone (loopback.go)
	lookers   *fdlimit.Budget
	followers chan struct{} // has one for each client that follows events by an address
	tally     *tally.Tally  // what is refused is counted there
	metrics   http.Handler  // nil: none

	glances glances // of the status page

	rules    access.Rules // without the policy
	policy   *PolicyFile  // nil: none
	refusals refusals

	descriptors *fdlimit.Budget // that clients may use
}

type connKey struct{}

// NewServer returns a server for the daemon that joined returns, which may
// change. While there is none, everybody is refused as unavailable who wants
// more than the journal, which may be nil.
func NewServer(log *slog.Logger, joined func() (*Daemon, error), journal *events.Log) *Server {
	s := &Server{joined: joined, log: log, events: journal, descriptors: fdlimit.Clients(), idleLink: idleLink,
		confirmWithin: confirmWithin}
	s.rules, s.refusals.log = access.WithoutPolicy(), log
	s.Measure(new(tally.Tally), nil)
	mux := http.NewServeMux()
	s.register(mux) // calls.go
	s.http = s.serverOf(fromBrowsers(ownName, mux), func() *fdlimit.Budget { return s.descriptors })
	looks := http.NewServeMux()
	s.looks(looks)
	s.lookers = s.descriptors.ForReaders()
	s.followers = make(chan struct{}, max(1, s.lookers.Limit/2))
	s.looking = s.serverOf(fromBrowsers(localName, onlyLooks(looks)), func() *fdlimit.Budget { return s.lookers })
	return s
}

// Measure has what is refused counted in t, and metrics served as /metrics; nil: they are not. It is called before Serve.
func (s *Server) Measure(t *tally.Tally, metrics http.Handler) {
	s.tally, s.metrics = t, metrics
	knowCodes(t)
}

func (s *Server) serverOf(h http.Handler, of func() *fdlimit.Budget) *http.Server {
	return &http.Server{
		Handler:           hurried(s.counting(h)),
		ReadHeaderTimeout: requestPatience,
		IdleTimeout:       idlePatience,
		MaxHeaderBytes:    maxBody,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext:       s.arrived,
		ConnState:         func(c net.Conn, state http.ConnState) { of().ConnState(c, state) },
	}
}

// Listen makes the Unix socket at path, which the group bakery, where there is
// one, may use. A socket that nobody serves any more is replaced.
func Listen(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: another bakeryd serves this socket; give this one --socket", path)
	} else if info, e := os.Lstat(path); e == nil && info.Mode().Type() == os.ModeSocket && errors.Is(err, unix.ECONNREFUSED) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket that is left over: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the socket: %w", err)
	}
	// Nobody gets in between bind and chmod.
	old := unix.Umask(0o177)
	ln, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if gid := access.SocketGID(); gid >= 0 {
		if err := os.Chown(path, -1, gid); err != nil && !errors.Is(err, os.ErrPermission) {
			ln.Close()
			return nil, fmt.Errorf("give the socket to group %s: %w", access.SocketGroup, err)
		}
	}
	if err := os.Chmod(path, 0o660); err != nil {
		ln.Close()
		return nil, fmt.Errorf("open the socket to its group: %w", err)
	}
	return ln, nil
}

// Serve serves until Shutdown.
func (s *Server) Serve(ln net.Listener) error {
	return serveBy(s.http, fdlimit.NewListener(ln, s.log, s.tally, s.descriptors))
}

func serveBy(srv *http.Server, ln net.Listener) error {
	err := srv.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown ends the server, and with it every connection.
func (s *Server) Shutdown() error {
	s.links.close()
	defer s.FlushRefusals()
	return errors.Join(s.http.Close(), s.looking.Close())
}

// Obey has the server go by a policy. It is called before Serve.
func (s *Server) Obey(p *PolicyFile) { s.policy = p }

// FlushRefusals logs the refusals that are yet to be logged; for one who does not call Shutdown.
func (s *Server) FlushRefusals() { s.refusals.flush() }

func (s *Server) whenJoined(h func(*Daemon, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := s.joined()
		if err != nil {
			writeError(w, http.StatusServiceUnavailable, &api.Error{Code: "unavailable", Message: err.Error(),
				Hint: "try again; the log of bakeryd says more, and bakeryctl status --device reads the disk without it"})
			return
		}
		h(d, w, r)
	}
}

func (s *Server) status(d *Daemon, w http.ResponseWriter, r *http.Request) {
	report, err := d.Status()
	if err != nil {
		writeError(w, http.StatusInternalServerError, api.ErrorOf(err))
		return
	}
	writeJSON(w, report)
}

func writeJSON(w http.ResponseWriter, v any) {
	hurry(w, answerPatience)
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}

func writeError(w http.ResponseWriter, status int, e *api.Error) {
	hurry(w, answerPatience)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Header().Set(refusedAs, e.Code)
	_ = json.NewEncoder(w).Encode(map[string]*api.Error{"error": e})
}

// hurry bounds what is written to a client from now on: one that does not read must not keep for ever what it is to be
// sent. After that its connection is of no use. 0: there is no bound.
func hurry(w http.ResponseWriter, patience time.Duration) {
	var by time.Time
	if patience > 0 {
		by = time.Now().Add(patience)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(by) // what has none does not hang
}

// hurried has the end of every answer written in time too, which net/http does behind the handler. A link is no answer.
func hurried(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == linkPath {
			h.ServeHTTP(w, r)
			return
		}
		hurry(w, 0)
		defer hurry(w, answerPatience)
		h.ServeHTTP(w, r)
	})
}

// decode reads a request's body; it must be one JSON object without members
// that nobody knows, and ask for what its sender may do.
func decode(r *http.Request, into any) (err error) {
	if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		_ = conn.SetReadDeadline(time.Now().Add(requestPatience))
		// net/http reads what is left of a body that was refused, and is not to wait for that any longer.
		defer func() {
			if err == nil {
				_ = conn.SetReadDeadline(time.Time{})
			}
		}()
	}
	if err := decodeBody(http.MaxBytesReader(nil, r.Body, maxBody), into); err != nil {
		return err
	}
	return permit(r, into)
}

func decodeBody(body io.Reader, into any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: body: %w", api.ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: body: more than one JSON value", api.ErrInvalid)
	}
	return nil
}
