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
)

const (
	socketGroup = "bakery"
	maxBody     = 16 << 10 // bytes of a request
)

// Server serves a daemon's locks over HTTP on a Unix socket. A lock is held as
// long as the connection is open that asked for it, in whatever process.
//
//	POST /v1/lock     a lockRequest; answers with a stream of lines (stream.go)
//	GET  /v1/status   a Report
//
// Errors are {"error": {"code", "message", "hint"}}.
type Server struct {
	d        *Daemon
	log      *slog.Logger
	http     *http.Server
	draining chan struct{} // closed: holders are to stop
}

type connKey struct{}

// NewServer returns a server for a daemon. Until that has joined, everybody
// is refused as unavailable.
func NewServer(d *Daemon) *Server {
	s := &Server{d: d, log: d.log, draining: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/lock", s.whenJoined(s.lock))
	mux.HandleFunc("GET /v1/status", s.whenJoined(s.status))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, apiError{Code: "invalid",
			Message: fmt.Sprintf("no such call: %s %s", r.Method, r.URL.Path), Hint: "POST /v1/lock or GET /v1/status"})
	})
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    maxBody,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
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

// Drain tells every holder that its lock is about to go, as if it were lost:
// the daemon cannot leave before they have stopped.
func (s *Server) Drain() { close(s.draining) }

// Shutdown ends the server, and with it every connection.
func (s *Server) Shutdown() error { return s.http.Close() }

func (s *Server) whenJoined(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.d.joined:
			h(w, r)
		default:
			writeError(w, http.StatusServiceUnavailable, apiError{Code: "unavailable",
				Message: "this host is still joining the lockspace", Hint: "try again; the log of bakeryd says how long it may take"})
		}
	}
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	report, err := s.d.Status()
	if err != nil {
		writeError(w, http.StatusInternalServerError, apiErrorOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(report)
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
	{ErrUnavailable, "unavailable", http.StatusServiceUnavailable, "see the log of bakeryd"},
	{ErrLost, "unavailable", http.StatusServiceUnavailable, "see the log of bakeryd"},
	{ErrDamaged, "device", http.StatusInternalServerError, "bakeryctl dump shows what cannot be read"},
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
