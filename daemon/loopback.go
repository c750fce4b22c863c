package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
)

// What can be had by an address rather than by the socket: the calls that only look. Who may connect to the socket is up to
// its permissions; an address of this machine is there for all its users, and one of a network for everybody. So there is
// nothing of the latter kind, and nothing but by asking for it.

// ErrNotLoopback is returned for an address that is not one of this machine alone.
var ErrNotLoopback = errors.New("not a loopback address")

// CheckLoopback returns ErrNotLoopback unless the address, with a port, is localhost or a loopback address.
func CheckLoopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	switch ip := net.ParseIP(host); {
	case err != nil || port == "":
		return fmt.Errorf("%w: %q, want ADDRESS:PORT, as 127.0.0.1:9415", ErrNotLoopback, address)
	case host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return fmt.Errorf("%w: %q, want 127.0.0.1, [::1] or localhost; for others put a reverse proxy in front of that, which asks who they are",
			ErrNotLoopback, address)
	}
	return nil
}

// ListenLoopback listens on an address of this machine alone, for [Server.ServeLooks].
func ListenLoopback(address string) (net.Listener, error) {
	if err := CheckLoopback(address); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err // says all
	}
	if at, ok := ln.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() { // by what the system takes localhost for
		ln.Close()
		return nil, fmt.Errorf("%w: %q is %v here, say 127.0.0.1", ErrNotLoopback, address, ln.Addr())
	}
	return ln, nil
}

// ServeLooks serves the calls that only look until Shutdown.
func (s *Server) ServeLooks(ln net.Listener) error {
	return serveBy(s.looking, fdlimit.NewListener(ln, s.log, s.tally, s.lookers))
}

// onlyLooks keeps all but the calls that look from h.
func onlyLooks(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			writeError(w, http.StatusForbidden, &api.Error{Code: "forbidden",
				Message: fmt.Sprintf("this address is for looking only: it does not serve %s %s", r.Method, r.URL.Path),
				Hint:    "the Unix socket does"})
			return
		}
		h.ServeHTTP(w, r)
	})
}
