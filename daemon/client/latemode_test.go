package client

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/daemon/client/clienttest"
	"github.com/bakeryd/bakeryd/layout"
)

// TestLateEventOfAnEarlierMode: the event of an earlier change comes while a later one is answered.
func TestLateEventOfAnEarlierMode(t *testing.T) {
	say := make(chan string)
	b := clienttest.Serve(t, func(x *exchange) {
		x.Grant(time.Hour)
		for {
			select {
			case s := <-say:
				x.Send(s)
			case <-x.Gone:
				return
			}
		}
	})
	h := mustLock(t, b.Socket, Options{})
	n := 0
	b.Answer("POST /v1/mode", func(w http.ResponseWriter, r *http.Request) {
		c := readChange(t, r)
		if n++; n == 2 { // the event of the first change, a little late
			say <- `{"event":"mode","mode":"shared","change":1}`
			time.Sleep(50 * time.Millisecond)
		}
		fmt.Fprintf(w, `{"mode":%q,"token":%q,"change":%d}`, *c.Mode, token, n)
	})
	for _, mode := range []layout.Mode{layout.Shared, layout.Exclusive} {
		if err := h.SetMode(t.Context(), mode); err != nil || h.Mode() != mode {
			t.Errorf("%v: %v, mode %v", mode, err, h.Mode())
		}
	}
}
