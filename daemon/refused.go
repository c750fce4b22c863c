package daemon

import (
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// refusedAs is where writeError leaves the code of what it says, for counting. It is set when the header has been written
// and goes to no client.
const refusedAs = "Refused-As"

// counting counts what is refused by h, but for the lines of streams and links, which count their own.
func (s *Server) counting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if code := w.Header().Get(refusedAs); code != "" {
			s.tally.Refused.Add(code)
		}
	})
}

// knowCodes has all codes counted from the beginning: who looks for what changes has to see the first of each.
func knowCodes(t *tally.Tally) {
	for _, code := range api.Codes() {
		t.Refused.Know(code)
	}
}
