package server

import (
	"errors"
	"fmt"
	"net"

	"github.com/bakeryd/bakeryd/daemon/fdlimit"
)

// An address serves only the calls that read. The permissions of the socket control which users may
// connect to it. All users of this machine can connect to a loopback address, and every host to an
// address of a network. Therefore bakeryd serves only loopback addresses, and only if configured.

// ErrNotLoopback is returned for an address that is not only of this machine.
var ErrNotLoopback = errors.New("not a loopback address")

// CheckLoopback returns ErrNotLoopback unless the address, with a port, is localhost or a loopback
// address.
func CheckLoopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	switch ip := net.ParseIP(host); {
	case err != nil || port == "":
		return fmt.Errorf("%w: %q, want ADDRESS:PORT, as 127.0.0.1:9415", ErrNotLoopback, address)
	case host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return fmt.Errorf("%w: %q, want 127.0.0.1, [::1] or localhost; for other hosts use a reverse proxy that authenticates them",
			ErrNotLoopback, address)
	}
	return nil
}

// ListenLoopback listens on a loopback address, for [Server.ServeLooks].
func ListenLoopback(address string) (net.Listener, error) {
	if err := CheckLoopback(address); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err // names the address and the reason
	}
	// localhost may resolve to another address
	if at, ok := ln.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		ln.Close()
		return nil, fmt.Errorf("%w: %q is %v here, use 127.0.0.1", ErrNotLoopback, address, ln.Addr())
	}
	return ln, nil
}

// ServeLooks serves the calls that only read, until Shutdown.
func (s *Server) ServeLooks(ln net.Listener) error {
	return serveBy(s.looking, fdlimit.NewListener(ln, s.cfg.Log, s.cfg.Tally, s.readers))
}
