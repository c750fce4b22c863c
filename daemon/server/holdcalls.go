package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// holdCall names the hold that an API call concerns.
type holdCall struct {
	Session string        `json:"session"`
	Token   layout.Ticket `json:"token"`
}

// hold returns that hold if the caller is its user or root.
func (c holdCall) hold(host Host, r *http.Request) (*locks.Hold, error) {
	if c.Token == 0 {
		return nil, fmt.Errorf("%w: no token given, want that of the hold", api.ErrInvalid)
	}
	by := callerOf(r)
	h, err := host.Sessions().Holder(c.Session, c.Token, by.who.UID)
	return h, by.notOwn(err, access.Change)
}

// refuseHold answers a call about a hold with an error. A lost hold is over, even if the host joins
// again.
func refuseHold(w http.ResponseWriter, err error) {
	if errors.Is(err, api.ErrLeaseLost) {
		err = fmt.Errorf("%w: %v", api.ErrLost, err)
	}
	e := api.ErrorOf(err)
	writeError(w, e.Status(), e)
}

// modeRequest is the body of POST /v1/mode.
type modeRequest struct {
	holdCall
	Mode *layout.Mode `json:"mode"`
}

func (s *Server) mode(host Host, w http.ResponseWriter, r *http.Request) {
	var body modeRequest
	err := decode(r, &body)
	if err == nil && body.Mode == nil {
		err = fmt.Errorf("%w: no mode given, want shared or exclusive", api.ErrInvalid)
	}
	var h *locks.Hold
	if err == nil {
		h, err = body.hold(host, r)
	}
	if err == nil {
		err = h.SetMode(r.Context(), *body.Mode)
	}
	if err != nil {
		refuseHold(w, err)
		return
	}
	answer := modeAnswer{Mode: *body.Mode, Token: h.Token()}
	if mode, changes := h.ModeAndChanges(); mode == answer.Mode { // else it was changed again meanwhile
		answer.Change = changes
	}
	writeJSON(w, answer)
}

// valueRequest is the body of POST /v1/value.
type valueRequest struct {
	holdCall
	Value *[]byte `json:"value"`
}

func (s *Server) setValue(host Host, w http.ResponseWriter, r *http.Request) {
	var body valueRequest
	err := decode(r, &body)
	if err == nil && body.Value == nil {
		err = fmt.Errorf("%w: no value given, want base64; an empty one clears it", api.ErrInvalid)
	}
	var h *locks.Hold
	if err == nil {
		h, err = body.hold(host, r)
	}
	if err == nil {
		err = h.SetValue(r.Context(), *body.Value)
	}
	if err != nil {
		refuseHold(w, err)
		return
	}
	writeJSON(w, map[string]any{"name": h.Lock().Entry.Name, "token": h.Token()})
}

func (s *Server) value(host Host, w http.ResponseWriter, r *http.Request) {
	v, err := host.LockManager().Value(r.Context(), r.URL.Query().Get("name"))
	if err != nil {
		e := api.ErrorOf(err)
		if errors.Is(err, api.ErrUnavailable) {
			e.Hint = "try again; bakeryctl value get --device reads the disk without bakeryd"
		}
		writeError(w, e.Status(), e)
		return
	}
	writeJSON(w, v)
}

// containRequest is the body of POST /v1/contain.
type containRequest struct {
	Session string `json:"session"`
}

func (s *Server) contain(host Host, w http.ResponseWriter, r *http.Request) {
	var body containRequest
	err := decode(r, &body)
	conn, _ := r.Context().Value(connKey{}).(*net.UnixConn)
	if err == nil {
		var of *session.Session
		by := callerOf(r)
		if of, err = host.Sessions().Of(body.Session, by.who.UID); err == nil {
			err = of.Contain(conn)
		}
		err = by.notOwn(err, access.Change)
	}
	if err != nil {
		failCall(w, err)
		return
	}
	writeJSON(w, struct{}{})
}

// modeAnswer is the answer to POST /v1/mode.
type modeAnswer struct {
	Mode  layout.Mode   `json:"mode"`
	Token layout.Ticket `json:"token"`
	// number of the change: the higher of two is the later; 0 if not known
	Change uint64 `json:"change,omitzero"`
}
