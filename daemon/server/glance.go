package server

import (
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/page"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// lastGlance is the last report of a page in the current or an earlier term. The zero value has none.
type lastGlance struct {
	mu sync.Mutex // guards the field below
	of *report.Glance
}

func (l *lastGlance) keep(g *report.Glance) {
	if g == nil || g.Report == nil || g.Report.ThisHost == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil || g.At.After(l.of.At) {
		l.of = g
	}
}

// past returns the answer while there is no host, for the reason why: with the last report, if there is
// one, as what is known now.
func (l *lastGlance) past(why error) *report.Glance {
	e := &api.Error{Code: "unavailable", Message: why.Error(), Hint: "the log of bakeryd says more; bakeryctl status --device reads the disk without it"}
	g := &report.Glance{At: time.Now().UTC(), Error: e}
	l.mu.Lock()
	of := l.of
	l.mu.Unlock()
	if of != nil {
		age := time.Since(of.At)
		if g.Read = of.Read; g.Read.Bytes > 0 {
			g.Read.AgoMS += age.Milliseconds()
		}
		g.Report = of.Report.Past(strings.TrimPrefix(e.Message, api.ErrUnavailable.Error()+": "), e.Hint, age, time.Duration(g.Read.AgoMS)*time.Millisecond)
	}
	return g
}

// glance serves GET /page/status. A missing report is no HTTP error: a browser would report that
// only in its console, which a user of the page does not see.
func (s *Server) glance(w http.ResponseWriter, r *http.Request) {
	var a *report.Glance
	if host, err := s.cfg.Host(); err != nil {
		if s.cfg.Last != nil {
			s.seen.keep(s.cfg.Last())
		}
		a = s.seen.past(err)
	} else {
		a = host.Glance()
		defer s.seen.keep(a) // it does not change any more
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
