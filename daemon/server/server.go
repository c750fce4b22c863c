// Package server serves the locks of a host over HTTP on a Unix socket, and what only reads also on
// a loopback address. It asks a [Host], which may change when the lease is lost, and knows no disk.
//
// The files by topic:
//
//   - server.go has the server and its refusals, calls.go the calls of the socket with their actions
//     and answers, looks.go those that only read, and the address that serves these alone
//   - shared.go limits what all clients of the address cause together
//   - link.go and stream.go are the two kinds of connection that get events of a lock
//   - eventstream.go answers the calls for events
//   - caller.go knows the process at the other end and what the policy allows it; browser.go
//     restricts browsers and clients of an address
package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/policy"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/server/body"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/warn"
)

const (
	maxBody = 16 << 10 // of a request, in bytes

	// Limits for a client: to send its request, to read an answer that is not a stream, and to send
	// the next request.
	requestPatience = 10 * time.Second
	answerPatience  = 30 * time.Second
	idlePatience    = 2 * time.Minute
)

// Server serves a daemon's locks over HTTP on a Unix socket. A lock is held as long as the
// connection that requested it is open, in any process. The guide api.md describes the calls.
//
// Errors are {"error": {"code", "message", "hint"}}. calls.go and package access define which
// caller may make which call.
type Server struct {
	cfg      Config
	http     *http.Server
	links    context.Context // ends when all links must
	endLinks context.CancelFunc

	looking   *http.Server // read-only, for clients known only by an address (looks.go)
	readers   *fdlimit.Budget
	followers chan struct{} // has one entry for each client that follows events by an address
	asking    pace          // of all clients of an address
	reading   turns         // of these at the journal
	lines     eventLines    // that clients are sent
	rules     access.Rules  // without the policy
	refused   *policy.Refusals

	mu          sync.Mutex   // guards the field below
	ignoredLogs warn.Limiter // of members that are ignored
}

// Config is the configuration of a server.
type Config struct {
	Host    func() (Host, error)  // returns the host of the current term, or why there is none
	Last    func() *report.Glance // returns what the last term knew when its lease was lost, with ThisHost; nil if none was; nil: none
	Log     *slog.Logger
	Events  *events.Log  // nil: none
	Tally   *tally.Tally // counts refusals; nil: one of its own
	Metrics http.Handler // of /metrics; nil: not served
	Policy  *policy.File // nil: none

	Descriptors *fdlimit.Budget // for clients; nil: fdlimit.Clients
	IdleLink    time.Duration   // how long a link may be open without a lock; 0: one minute
}

// Host is what a server needs of a host that has joined.
type Host interface {
	LockManager() *locks.Manager
	Sessions() *session.Table
	// Evict publishes that a host is dead, or asks it to leave.
	Evict(ctx context.Context, id int, incarnation uint64, forget bool) (dead bool, err error)
	Meet(ctx context.Context, o measuring.MeetOptions) (*measuring.MeetReport, error)
	Floor(ctx context.Context, name string, rounds int) (*measuring.Floor, error)
	Status() (*report.Report, error)
	Glance() *report.Glance
}

// New returns a server. While there is no host, all requests except those for events and
// metrics are refused as unavailable.
func New(cfg Config) *Server {
	cfg.IdleLink = cmp.Or(cfg.IdleLink, time.Minute)
	cfg.Tally = cmp.Or(cfg.Tally, new(tally.Tally))
	if cfg.Descriptors == nil {
		cfg.Descriptors = fdlimit.Clients()
	}
	for _, code := range api.Codes() {
		cfg.Tally.Refused.Know(code) // a monitor of changes then sees the first refusal of each
	}
	s := &Server{cfg: cfg, rules: access.WithoutPolicy(), refused: policy.NewRefusals(cfg.Log), readers: cfg.Descriptors.ForReaders()}
	s.links, s.endLinks = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	s.register(mux) // calls.go
	s.http = s.serverOf(restrict(false, mux), cfg.Descriptors)
	looks := http.NewServeMux()
	s.looks(looks, true)
	s.followers, s.reading = make(chan struct{}, max(1, s.readers.Limit/2)), make(turns, 1)
	s.looking = s.serverOf(s.asking.paced(restrict(true, looks)), s.readers)
	return s
}

// HTTP returns the server of the socket, for tests without one.
func (s *Server) HTTP() *http.Server { return s.http }

func (s *Server) serverOf(h http.Handler, of *fdlimit.Budget) *http.Server {
	return &http.Server{
		Handler:           s.answering(h),
		ReadHeaderTimeout: requestPatience,
		IdleTimeout:       idlePatience,
		MaxHeaderBytes:    maxBody,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		ConnContext:       s.arrived,
		ConnState:         of.ConnState,
	}
}

// ErrServed is returned when another process serves a socket.
var ErrServed = errors.New("another bakeryd serves this socket")

// ErrKilled is returned when the process that serves a socket was killed, and has not ended.
var ErrKilled = errors.New("the bakeryd of this socket was killed, and waits for its IO to end")

// Listen creates the Unix socket at path. The group bakery, if it exists, may use it. Listen
// replaces a socket that no process serves. It returns ErrServed or ErrKilled.
func Listen(path string) (net.Listener, error) {
	return ListenFor(path, access.SocketGroup, access.SocketGID())
}

// ListenFor is Listen for a group with a number, -1 if it does not exist.
func ListenFor(path, group string, gid int) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		pid, _, _ := peer.Credentials(c.(*net.UnixConn))
		c.Close()
		if process.Killed(pid) {
			return nil, fmt.Errorf("listen on %s: %w: process %d", path, ErrKilled, pid)
		}
		return nil, fmt.Errorf("listen on %s: %w", path, ErrServed)
	} else if info, e := os.Lstat(path); e == nil && info.Mode().Type() == os.ModeSocket && errors.Is(err, unix.ECONNREFUSED) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the old socket: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of the socket: %w", err)
	}
	// No other user gets access between bind and chmod.
	old := unix.Umask(0o177)
	ln, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the path
		}
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if gid >= 0 {
		if err := os.Chown(path, -1, gid); err != nil && !errors.Is(err, os.ErrPermission) {
			ln.Close()
			return nil, fmt.Errorf("give the socket to group %s: %w", group, err)
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
	return serveBy(s.http, fdlimit.NewListener(ln, s.cfg.Log, s.cfg.Tally, s.cfg.Descriptors))
}

func serveBy(srv *http.Server, ln net.Listener) error {
	err := srv.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown ends the server and every connection.
func (s *Server) Shutdown() error {
	s.endLinks()
	defer s.FlushRefusals()
	return errors.Join(s.http.Close(), s.looking.Close())
}

// FlushRefusals logs the refusals that were not logged yet, for a caller that does not call
// Shutdown.
func (s *Server) FlushRefusals() { s.refused.Flush() }

func (s *Server) whenJoined(h func(Host, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, err := s.cfg.Host()
		if err != nil {
			refuse(w, &api.Error{Code: api.CodeUnavailable, Message: err.Error(),
				Hint: "try again; the log of bakeryd says more, and bakeryctl status --device reads the disk without it"})
			return
		}
		h(host, w, r)
	}
}

func (s *Server) status(host Host, _ *http.Request) (any, error) {
	r, err := host.Status()
	s.judgePolicy(r)
	return r, err
}

func writeJSON(w http.ResponseWriter, v any) {
	setWriteDeadline(w, answerPatience)
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}

// refuse answers with an error, which may be an *api.Error. Here a busy lock is an error status; in
// a stream it is not.
func refuse(w http.ResponseWriter, err error) {
	e, ok := err.(*api.Error)
	if !ok {
		e = api.ErrorOf(err)
	}
	status := e.Status()
	if status == http.StatusOK {
		status = http.StatusConflict
	}
	writeError(w, status, e)
}

// refusedAs is the header in which writeError leaves its code for the count. It is set after the
// header has been written, so no client receives it.
const refusedAs = "Refused-As"

// answering limits the end of every answer, which net/http writes after the handler; a link has no
// such end. It counts the refusals by h, except the lines of streams and links, which count their own.
func (s *Server) answering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != linkPath {
			setWriteDeadline(w, 0)
			defer setWriteDeadline(w, answerPatience)
		}
		h.ServeHTTP(w, r)
		if code := w.Header().Get(refusedAs); code != "" {
			s.cfg.Tally.Refused.Add(code)
		}
	})
}

func writeError(w http.ResponseWriter, status int, e *api.Error) {
	setWriteDeadline(w, answerPatience)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Header().Set(refusedAs, e.Code)
	_ = json.NewEncoder(w).Encode(map[string]*api.Error{"error": e})
}

// setWriteDeadline limits the time for writing to a client from now on; 0 removes the limit. A client that
// does not read must not keep its answer in memory forever. After the deadline its connection is
// unusable.
func setWriteDeadline(w http.ResponseWriter, patience time.Duration) {
	var by time.Time
	if patience > 0 {
		by = time.Now().Add(patience)
	}
	// a writer without deadlines does not hang
	_ = http.NewResponseController(w).SetWriteDeadline(by)
}

// decode reads a request's body. It must be one JSON object, and ask only for what the caller may do by
// the action of the call. A warning that members are ignored becomes a header of the answer.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, action access.Action, into any) (warning string, err error) {
	if conn := callerOf(r).conn; conn != nil {
		_ = conn.SetReadDeadline(time.Now().Add(requestPatience))
		// net/http reads the rest of a refused body, and must not wait for it any longer.
		defer func() {
			if err == nil {
				_ = conn.SetReadDeadline(time.Time{})
			}
		}()
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return "", fmt.Errorf("%w: body: %w", api.ErrInvalid, err)
	}
	unknown, err := body.Decode(text, into)
	if err != nil {
		return "", err
	}
	if len(unknown) > 0 && (action == access.Remove || action == access.Evict) {
		return "", body.Final(unknown[0])
	}
	if warning = s.ignored(r.Method+" "+r.URL.Path, callerOf(r), unknown); warning != "" {
		w.Header().Set("Warning", "299 - "+strconv.Quote(warning))
	}
	return warning, permit(r, action, into)
}

// ignored logs at most every 10 s that members of a request are ignored, and returns a warning for the
// client, or "" if there are none.
func (s *Server) ignored(call string, by *caller, members []string) string {
	warning := body.Warning(members)
	if warning == "" {
		return ""
	}
	s.mu.Lock()
	log := s.ignoredLogs.Allow()
	s.mu.Unlock()
	if log {
		s.cfg.Log.Warn("members of a request are not known and ignored", "call", call, "warning", warning, "uid", by.who.UID, "pid", by.who.PID)
	}
	return warning
}
