package server

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/page"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// looks registers the calls that only read. They change nothing on the disk or on this host.
func (s *Server) looks(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/status", s.withoutBody(s.status))
	mux.HandleFunc("GET /v1/locks", s.withoutBody(s.locks))
	mux.HandleFunc("GET /v1/events", s.serveEvents)
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("GET "+page.Below+"status", s.glance)
	for _, at := range []string{"/{$}", page.Below} {
		mux.Handle(at, page.Handler())
	}
	mux.HandleFunc("/", noSuchCall)
}

func noSuchCall(w http.ResponseWriter, r *http.Request) {
	writeError(w, http.StatusNotFound, &api.Error{Code: "invalid",
		Message: fmt.Sprintf("no such call: %s %s", r.Method, r.URL.Path), Hint: "the guide api.md lists the calls"})
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Metrics == nil {
		noSuchCall(w, r)
		return
	}
	setWriteDeadline(w, answerPatience)
	s.cfg.Metrics.ServeHTTP(w, r)
}

// glance serves GET /page/status. A missing report is no HTTP error: a browser would report that
// only in its console, which a user of the page does not see.
func (s *Server) glance(w http.ResponseWriter, r *http.Request) {
	var a *report.Glance
	if host, err := s.cfg.Host(); err != nil {
		a = &report.Glance{At: time.Now().UTC(), Error: &api.Error{Code: "unavailable", Message: err.Error(), Hint: "The log of bakeryd says more; " +
			"bakeryctl status --device reads the disk without it."}}
	} else {
		a = host.Glance()
	}
	text, err := json.Marshal(a)
	if err != nil {
		refuse(w, err)
		return
	}
	setWriteDeadline(w, answerPatience)
	page.Guard(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept-Encoding")
	// the connection may be an ssh tunnel
	if len(text) > 16<<10 && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // BestSpeed is a valid level
		_, _ = z.Write(text)
		_ = z.Close()
		return
	}
	_, _ = w.Write(text)
}
