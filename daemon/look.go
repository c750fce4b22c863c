package daemon

import (
	"fmt"
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/page"
)

// looks registers the calls that only read. They change nothing on the disk or on this host.
func (s *Server) looks(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/status", s.whenJoined(s.status))
	mux.HandleFunc("GET /v1/locks", s.whenJoined(s.locks))
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
	if s.metrics == nil {
		noSuchCall(w, r)
		return
	}
	setWriteDeadline(w, answerPatience)
	s.metrics.ServeHTTP(w, r)
}
