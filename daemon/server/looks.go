package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/page"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// looks registers the calls that only read, for the socket or for an address, whose clients share the
// answers. They change nothing on the disk or on this host.
func (s *Server) looks(mux *http.ServeMux, byAddress bool) {
	status, maybeShared := s.status, func(h http.HandlerFunc, _ time.Duration, _ bool) http.Handler { return h }
	if byAddress {
		status, maybeShared = s.statusOfPage, s.share
	}
	mux.Handle("GET /v1/status", maybeShared(s.withoutBody(status), mostShared, false))
	mux.Handle("GET /v1/locks", maybeShared(s.withoutBody(s.locks), listShared, false))
	mux.HandleFunc("GET /v1/events", s.serveEvents)
	mux.Handle("GET /metrics", maybeShared(s.serveMetrics, mostShared, false))
	mux.Handle("GET "+page.Below+"status", maybeShared(s.glance, mostShared, true))
	for _, at := range []string{"/{$}", page.Below} {
		mux.Handle(at, page.Handler())
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		hint := anyCall
		for _, method := range []string{"GET", "POST"} {
			other := &http.Request{Method: method, Host: r.Host, URL: r.URL}
			if _, pattern := mux.Handler(other); pattern == method+" "+r.URL.Path {
				hint = "use " + pattern
			}
		}
		noSuchCall(w, r, hint)
	})
}

// statusOfPage answers with what the status page has read of the disk, at its pace.
func (s *Server) statusOfPage(host Host, _ *http.Request) (any, error) {
	a := host.Glance()
	if a.Error != nil {
		return nil, a.Error
	}
	s.judgePolicy(a.Report)
	return a.Report, nil
}

const anyCall = "the guide api.md lists the calls"

func noSuchCall(w http.ResponseWriter, r *http.Request, hint string) {
	writeError(w, http.StatusNotFound, &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("no such call: %s %s", r.Method, r.URL.Path), Hint: hint})
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Metrics == nil {
		noSuchCall(w, r, anyCall)
		return
	}
	setWriteDeadline(w, answerPatience)
	s.cfg.Metrics.ServeHTTP(w, r)
}

// judgePolicy adds a problem to a report, unless that is nil, if the policy in force is not that of the file.
func (s *Server) judgePolicy(r *report.Report) {
	if r == nil || s.cfg.Policy == nil {
		return
	}
	policy := s.cfg.Policy.Current.Load()
	fault, changed := policy.Fault, s.cfg.Policy.Changed()
	if fault == nil && !changed {
		return
	}
	p := report.Problem{Severity: report.SeverityError, Kind: report.ProblemPolicy, Subject: "policy"}
	var why []string
	if fault == nil {
		p.Text = fmt.Sprintf("the policy file %s has changed since it was read", s.cfg.Policy.Path())
	} else {
		p.Remedy = fault.Remedy()
		if p.Text, p.Why = fault.Text(); p.Why != "" {
			why = append(why, p.Why)
		}
	}
	if fault != nil && changed {
		p.Text = fault.Past()
	}
	if policy.InForce() {
		p.Severity = report.SeverityWarning
		why = append(why, "the policy that was read before stays in force")
	} else {
		why = append(why, "only root and bakeryd's own user may take locks here")
	}
	if changed {
		p.Remedy = access.Reload
	}
	p.Why = strings.Join(why, "; ")
	r.AddProblem(p)
}

// An address serves only the calls that read. The permissions of the socket control which users may
// connect to it. All users of this machine can connect to a loopback address, and every host to an
// address of a network. Therefore bakeryd serves only loopback addresses, and only if configured.

// ErrNotLoopback is returned for an address that is not only of this machine.
var ErrNotLoopback = errors.New("not a loopback address")

// CheckLoopback returns ErrNotLoopback unless the address, with a port, is localhost or a loopback
// address, and an error for a port that no address has.
func CheckLoopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	switch ip := net.ParseIP(host); {
	case err != nil || port == "":
		return fmt.Errorf("%w: %q, want ADDRESS:PORT, as 127.0.0.1:9415", ErrNotLoopback, address)
	case host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return fmt.Errorf("%w: %q, want 127.0.0.1, [::1] or localhost; for other hosts use a reverse proxy that authenticates them",
			ErrNotLoopback, address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: want a port from 0 to 65535", address)
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
	return serveBy(s.looking, fdlimit.NewListener(pacedListener{ln, &s.asking, s.links}, s.cfg.Log, s.cfg.Tally, s.readers))
}
