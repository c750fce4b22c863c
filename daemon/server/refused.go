package server

import (
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// refusedAs is the header in which writeError leaves its code for the count. It is set after the
// header has been written, so no client receives it.
const refusedAs = "Refused-As"

// counting counts the refusals by h, except the lines of streams and links, which count their own.
func (s *Server) counting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if code := w.Header().Get(refusedAs); code != "" {
			s.cfg.Tally.Refused.Add(code)
		}
	})
}

// knowCodes begins to count all codes at 0, so that a monitor of changes sees the first refusal of
// each.
func knowCodes(t *tally.Tally) {
	for _, code := range api.Codes() {
		t.Refused.Know(code)
	}
}
