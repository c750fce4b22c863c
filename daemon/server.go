package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/events"
)

const (
	socketGroup = "bakery"
	maxBody     = 16 << 10 // bytes of a request
)

// Server serves a daemon's locks over HTTP on a Unix socket. A lock is held as
// long as the connection is open that asked for it, in whatever process.
//
//	POST /v1/lock     a lockRequest; answers with a stream of lines (stream.go)
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
//	GET  /v1/events   lines of events.Event, also while the host joins (eventstream.go)
//
// Errors are {"error": {"code", "message", "hint"}}.
type Server struct {
	joined func() (*Daemon, error) // the daemon of the term in force, or why there is none
	log    *slog.Logger
	events *events.Log // nil: none
	http   *http.Server
}

type connKey struct{}

// NewServer returns a server for the daemon that joined returns, which may
// change. While there is none, everybody is refused as unavailable who wants
// more than the journal, which may be nil.
func NewServer(log *slog.Logger, joined func() (*Daemon, error), journal *events.Log) *Server {
	s := &Server{joined: joined, log: log, events: journal}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/lock", s.whenJoined(s.lock))
	mux.HandleFunc("POST /v1/create", s.whenJoined(s.create))
	mux.HandleFunc("POST /v1/remove", s.whenJoined(s.remove))
	mux.HandleFunc("GET /v1/locks", s.whenJoined(s.locks))
	mux.HandleFunc("POST /v1/evict", s.whenJoined(s.evict))
	mux.HandleFunc("POST /v1/meet", s.whenJoined(s.meet))
	mux.HandleFunc("POST /v1/request", s.whenJoined(s.request))
	mux.HandleFunc("POST /v1/mode", s.whenJoined(s.mode))
	mux.HandleFunc("POST /v1/value", s.whenJoined(s.setValue))
	mux.HandleFunc("GET /v1/value", s.whenJoined(s.value))
	mux.HandleFunc("GET /v1/status", s.whenJoined(s.status))
	mux.HandleFunc("GET /v1/events", s.serveEvents)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, apiError{Code: "invalid",
			Message: fmt.Sprintf("no such call: %s %s", r.Method, r.URL.Path), Hint: "the README lists the calls"})
	})
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    maxBody,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	return s
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
	if g, err := user.LookupGroup(socketGroup); err == nil {
		if gid, err := strconv.Atoi(g.Gid); err == nil {
			err = os.Chown(path, -1, gid)
			if err != nil && !errors.Is(err, os.ErrPermission) {
				ln.Close()
				return nil, fmt.Errorf("give the socket to group %s: %w", socketGroup, err)
			}
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
	err := s.http.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown ends the server, and with it every connection.
func (s *Server) Shutdown() error { return s.http.Close() }

func (s *Server) whenJoined(h func(*Daemon, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := s.joined()
		if err != nil {
			writeError(w, http.StatusServiceUnavailable, apiError{Code: "unavailable", Message: err.Error(),
				Hint: "try again; the log of bakeryd says more, and bakeryctl status --device reads the disk without it"})
			return
		}
		h(d, w, r)
	}
}

func (s *Server) status(d *Daemon, w http.ResponseWriter, r *http.Request) {
	report, err := d.Status()
	if err != nil {
		writeError(w, http.StatusInternalServerError, apiErrorOf(err))
		return
	}
	writeJSON(w, report)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}

// apiError is how an error looks to a client.
type apiError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

var apiErrors = []struct {
	err  error
	code string
	http int
	hint string
}{
	{ErrInvalid, "invalid", http.StatusBadRequest, ""},
	{ErrBusy, "busy", http.StatusOK, ""},
	{ErrTimeout, "timeout", http.StatusOK, ""},
	{ErrFull, "full", http.StatusInsufficientStorage, "remove a lock that is not used any more, or format with more --locks"},
	{ErrPermits, "permits", http.StatusConflict, "all who use a lock must agree on its permits"},
	{ErrFree, "free", http.StatusConflict, "it can be had at once"},
	{ErrNoLock, "missing", http.StatusNotFound, "bakeryctl locks lists them"},
	{ErrUnavailable, "unavailable", http.StatusServiceUnavailable, "see the log of bakeryd"},
	{ErrHoldOver, "lost", http.StatusGone, "the lock is not held any more: stop what needs it"},
	{ErrLost, "unavailable", http.StatusServiceUnavailable, "see the log of bakeryd"},
	{ErrMeeting, "meeting", http.StatusConflict, "try again when that is over"},
	{ErrUpgrade, "upgrade", http.StatusConflict, "release it and take it exclusively, or try again"},
	{ErrNoLock, "missing", http.StatusNotFound, "bakeryctl locks lists them"},
	{ErrUnreadable, "device", http.StatusInternalServerError, "bakeryctl check tells what cannot be read, and what mends it"},
	{ErrDamaged, "device", http.StatusInternalServerError, "bakeryctl check tells what cannot be read, and what mends it"},
}

func apiErrorOf(err error) apiError {
	for _, e := range apiErrors {
		if errors.Is(err, e.err) {
			return apiError{Code: e.code, Message: err.Error(), Hint: e.hint}
		}
	}
	return apiError{Code: "device", Message: err.Error()}
}

func httpStatus(code string) int {
	for _, e := range apiErrors {
		if e.code == code {
			return e.http
		}
	}
	return http.StatusInternalServerError
}

func writeError(w http.ResponseWriter, status int, e apiError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]apiError{"error": e})
}

// decode reads a request's body; it must be one JSON object without members
// that nobody knows.
func decode(r *http.Request, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: body: %w", ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: body: more than one JSON value", ErrInvalid)
	}
	return nil
}
