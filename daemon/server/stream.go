package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/daemon/wire"
)

// tellPatience limits the time for sending an event to a client. Nearly all events are sent only if
// the client reads. A client that cannot be sent its grant does not get it.
const tellPatience = 5 * time.Second

// lock answers with the events of a lock until the client is gone or refused.
func (s *Server) lock(host Host, w http.ResponseWriter, r *http.Request) {
	ctx, end := context.WithCancel(r.Context())
	defer end()
	by := callerOf(r)
	st := wire.NewStream(by.socket(), end)
	var body api.LockRequest
	warning, err := s.decode(w, r, access.Lock, &body)
	if err == nil {
		err = session.Validate(&body)
	}
	if err == nil && body.Confirm {
		err = fmt.Errorf("%w: a grant is confirmed on a link only", api.ErrInvalid)
	}
	var a *session.Attachment
	if err == nil {
		a, err = host.Sessions().Open(body, by.client(), st)
		err = by.notOwn(err, access.Lock)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	defer a.Leave()
	a.StartSoon() // this goroutine does not wait for the device
	w.Header().Set("Content-Type", "application/x-ndjson")
	for sent := false; ; sent = true {
		select {
		case <-ctx.Done():
			return
		case e := <-st.Events:
			if !sent && e.Kind == api.Refused && e.Err().Status() != http.StatusOK {
				refuse(w, e.Err())
				return
			}
			text := e.Append(nil)
			if !sent && warning != "" {
				text = append((&api.Event{Kind: api.Warning, Message: warning}).Append(nil), text...)
			}
			if e.Kind == api.Refused {
				s.cfg.Tally.Refused.Add(e.Code)
			}
			if writePart(w, tellPatience, text) != nil || e.Kind == api.Refused {
				return
			}
		}
	}
}

// writePart writes a part of a stream, which the client must read in time.
func writePart(w http.ResponseWriter, patience time.Duration, text []byte) error {
	setWriteDeadline(w, patience)
	defer setWriteDeadline(w, 0) // the next part may come at any time
	if _, err := w.Write(text); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
