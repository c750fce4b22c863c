package server

import (
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/page"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// past returns the answer while there is no host, for the reason why: with what the last term knew as what
// is known now; nil: there was none.
func past(last *report.Glance, why error) *report.Glance {
	e := &api.Error{Code: api.CodeUnavailable, Message: why.Error(), Hint: "the log of bakeryd says more; bakeryctl status --device reads the disk without it"}
	g := &report.Glance{At: time.Now().UTC(), Error: e}
	if last == nil {
		return g
	}
	age := time.Since(last.At)
	if g.Read = last.Read; g.Read.Bytes > 0 {
		g.Read.AgoMS += age.Milliseconds()
	}
	g.Report = last.Report.Past(strings.TrimPrefix(e.Message, api.ErrUnavailable.Error()+": "), e.Hint, age, time.Duration(g.Read.AgoMS)*time.Millisecond)
	return g
}

// glance serves GET /page/status. A missing report is no HTTP error: a browser would report that
// only in its console, which a user of the page does not see.
func (s *Server) glance(w http.ResponseWriter, r *http.Request) {
	var a *report.Glance
	if host, err := s.cfg.Host(); err != nil {
		var last *report.Glance
		if s.cfg.Last != nil {
			last = s.cfg.Last()
		}
		a = past(last, err)
	} else {
		a = host.Glance()
	}
	s.judgePolicy(a.Report)
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
