package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// holdCall names the hold that an API call concerns.
type holdCall struct {
	Session string        `json:"session"`
	Token   layout.Ticket `json:"token"`
}

// change changes that hold if the caller is its user or root.
func (c holdCall) change(host Host, r *http.Request, change func(*locks.Hold) error) (*locks.Hold, error) {
	if c.Token == 0 {
		return nil, fmt.Errorf("%w: no token given, want that of the hold", api.ErrInvalid)
	}
	by := callerOf(r)
	h, err := host.Sessions().Holder(c.Session, c.Token, by.who.UID)
	if err == nil {
		err = change(h)
	}
	if errors.Is(err, api.ErrLeaseLost) { // the hold is over, even if the host joins again
		err = fmt.Errorf("%w: %v", api.ErrLost, err)
	}
	return h, by.notOwn(err, access.Change)
}

// modeRequest is the body of POST /v1/mode.
type modeRequest struct {
	holdCall
	Mode *layout.Mode `json:"mode"`
}

// modeAnswer is the answer to POST /v1/mode.
type modeAnswer struct {
	Mode  layout.Mode   `json:"mode"`
	Token layout.Ticket `json:"token"`
	// number of the change: the higher of two is the later; 0 if not known
	Change uint64 `json:"change,omitzero"`
}

func (s *Server) mode(host Host, r *http.Request, body *modeRequest) (any, error) {
	if body.Mode == nil {
		return nil, fmt.Errorf("%w: no mode given, want shared or exclusive", api.ErrInvalid)
	}
	h, err := body.change(host, r, func(h *locks.Hold) error { return h.SetMode(r.Context(), *body.Mode) })
	if err != nil {
		return nil, err
	}
	answer := modeAnswer{Mode: *body.Mode, Token: h.Token()}
	if mode, changes := h.ModeAndChanges(); mode == answer.Mode { // else it was changed again meanwhile
		answer.Change = changes
	}
	return answer, nil
}

// valueRequest is the body of POST /v1/value.
type valueRequest struct {
	holdCall
	Value *[]byte `json:"value"`
}

func (s *Server) setValue(host Host, r *http.Request, body *valueRequest) (any, error) {
	if body.Value == nil {
		return nil, fmt.Errorf("%w: no value given, want base64; an empty one clears it", api.ErrInvalid)
	}
	h, err := body.change(host, r, func(h *locks.Hold) error { return h.SetValue(r.Context(), *body.Value) })
	if err != nil {
		return nil, err
	}
	return map[string]any{"name": h.Lock().Entry.Name, "token": h.Token()}, nil
}

func (s *Server) value(host Host, r *http.Request) (any, error) {
	v, err := host.LockManager().Value(r.Context(), r.URL.Query().Get("name"))
	if errors.Is(err, api.ErrUnavailable) {
		e := api.ErrorOf(err)
		e.Hint = "try again; bakeryctl value get --device reads the disk without bakeryd"
		return nil, e
	}
	return v, err
}

// containRequest is the body of POST /v1/contain.
type containRequest struct {
	Session string `json:"session"`
}

func (s *Server) contain(host Host, r *http.Request, body *containRequest) (any, error) {
	by := callerOf(r)
	of, err := host.Sessions().Of(body.Session, by.who.UID)
	if err == nil {
		err = of.Contain(by.socket())
	}
	return struct{}{}, by.notOwn(err, access.Change)
}
