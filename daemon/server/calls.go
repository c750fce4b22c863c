package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease/evict"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// call is a call of the socket, and the action that it counts as.
type call struct {
	pattern string
	action  access.Action
	answer  http.HandlerFunc
}

// calls returns the calls that do more than read, and those that are served only on the socket.
func (s *Server) calls() []call {
	return []call{
		{"POST /v1/lock", access.Lock, s.whenJoined(s.lock)},
		{"GET " + linkPath, access.Lock, s.link},                  // checked for each line
		withBody(s, "POST /v1/contain", access.Change, s.contain), // of a session
		withBody(s, "POST /v1/create", access.Create, s.create),
		withBody(s, "POST /v1/remove", access.Remove, s.remove),
		withBody(s, "POST /v1/evict", access.Evict, s.evict),
		withBody(s, "POST /v1/meet", access.Meet, s.meet),
		withBody(s, "POST /v1/floor", access.Floor, s.floor),
		withBody(s, "POST /v1/request", access.Request, s.request),
		withBody(s, "POST /v1/mode", access.Change, s.mode),
		withBody(s, "POST /v1/value", access.Change, s.setValue),
		{"GET /v1/value", access.Look, s.withoutBody(s.value)},
		{"GET /v1/blocker", access.Look, s.withoutBody(s.blocker)},
	}
}

// withBody returns a call with a body. It decodes the body, and checks the access to what that asks
// for.
func withBody[B any](s *Server, pattern string, action access.Action, answer func(Host, *http.Request, *B) (any, error)) call {
	return call{pattern, action, s.whenJoined(func(host Host, w http.ResponseWriter, r *http.Request) {
		body := new(B)
		_, err := s.decode(w, r, action, body)
		var v any
		if err == nil {
			v, err = answer(host, r, body)
		}
		reply(w, v, err)
	})}
}

// withoutBody returns the handler of a call whose answer is not a stream.
func (s *Server) withoutBody(answer func(Host, *http.Request) (any, error)) http.HandlerFunc {
	return s.whenJoined(func(host Host, w http.ResponseWriter, r *http.Request) {
		v, err := answer(host, r)
		reply(w, v, err)
	})
}

// reply answers with a value, or with an error.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, v)
}

// register registers all calls. No call exists that is neither in calls nor in looks.
func (s *Server) register(mux *http.ServeMux) {
	for _, c := range s.calls() {
		mux.HandleFunc(c.pattern, c.answer)
	}
	s.looks(mux, false)
}

// Actions returns the actions of the calls that do more than read, by their patterns.
func (s *Server) Actions() map[string]access.Action {
	actions := map[string]access.Action{}
	for _, c := range s.calls() {
		actions[c.pattern] = c.action
	}
	return actions
}

// named is a request that names a lock.
type named struct {
	Name string `json:"name" jsonschema:"required"`
}

func (n *named) lockName() string { return n.Name }

// createRequest is the body of POST /v1/create.
type createRequest struct {
	named
	Permits int `json:"permits"` // limit of exclusive holders; 0: 1
}

// createAnswer describes the lock.
type createAnswer struct {
	directory.ListedLock
	Created bool `json:"created"` // false if it existed already
}

func (s *Server) create(host Host, r *http.Request, body *createRequest) (any, error) {
	e, created, err := host.LockManager().Create(r.Context(), body.Name, body.Permits)
	return createAnswer{directory.Listed(e), created}, err
}

// removeRequest is the body of POST /v1/remove.
type removeRequest struct {
	named
	TimeoutMS int64 `json:"timeout_ms"`  // 0 if none
	NonBlock  bool  `json:"nonblock"`    // refuse as busy instead of waiting
	IfNoValue bool  `json:"if_no_value"` // keep a lock that has a value
}

func (s *Server) remove(host Host, r *http.Request, body *removeRequest) (any, error) {
	if body.TimeoutMS < 0 {
		return nil, fmt.Errorf("%w: timeout_ms %d, want 0 or more", api.ErrInvalid, body.TimeoutMS)
	}
	ctx := r.Context()
	if body.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, session.Timeout(body.TimeoutMS), api.ErrTimeout)
		defer cancel()
	}
	remove := host.LockManager().Remove
	if body.IfNoValue {
		remove = host.LockManager().RemoveIfNoValue
	}
	return body.named, remove(ctx, body.Name, body.NonBlock)
}

func (s *Server) locks(host Host, r *http.Request) (any, error) {
	return host.LockManager().Locks(r.Context())
}

// floorRequest is the body of POST /v1/floor.
type floorRequest struct {
	named
	Rounds int `json:"rounds" jsonschema:"required"` // 1 to 1000
}

// floor handles POST /v1/floor. It is for root and bakeryd's own user, because it does nothing but
// load the device.
func (s *Server) floor(host Host, r *http.Request, body *floorRequest) (any, error) {
	return host.Floor(r.Context(), body.Name, body.Rounds)
}

// requestRequest is the body of POST /v1/request.
type requestRequest struct {
	named
	Message string `json:"message"` // for the holders, at most 54 bytes; empty if none
}

// requestAnswer is the answer to POST /v1/request.
type requestAnswer struct {
	Asked []locks.Asked `json:"asked"` // the holders
}

// request answers with the holders that were sent the request.
func (s *Server) request(host Host, r *http.Request, body *requestRequest) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), recordPatience)
	defer cancel()
	asked, err := host.LockManager().Request(ctx, body.Name, body.Message)
	return requestAnswer{asked}, err
}

// holdCall names the hold that an API call concerns.
type holdCall struct {
	Session string        `json:"session" jsonschema:"required"` // of the lock request
	Token   layout.Ticket `json:"token" jsonschema:"required"`   // of the hold
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
	Mode *layout.Mode `json:"mode" jsonschema:"required"` // in which the holder continues
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
	Value *[]byte `json:"value" jsonschema:"required"` // at most 256 bytes; empty clears it
}

// valueSet is the answer to POST /v1/value.
type valueSet struct {
	Name  string        `json:"name"`
	Token layout.Ticket `json:"token"` // of the hold
}

func (s *Server) setValue(host Host, r *http.Request, body *valueRequest) (any, error) {
	if body.Value == nil {
		return nil, fmt.Errorf("%w: no value given, want base64; an empty one clears it", api.ErrInvalid)
	}
	h, err := body.change(host, r, func(h *locks.Hold) error { return h.SetValue(r.Context(), *body.Value) })
	if err != nil {
		return nil, err
	}
	return valueSet{h.Lock().Entry.Name, h.Token()}, nil
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

// blockerAnswer is the answer to GET /v1/blocker.
type blockerAnswer struct {
	Name string `json:"name"` // of the lock
	// Text says in words what a client that requests the lock waits for. It is empty if the lock is
	// free, or its holder not known.
	Text string `json:"text"`
}

// blocker answers with what a client that requests a lock waits for.
func (s *Server) blocker(host Host, r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	text, err := host.LockManager().Blocker(r.Context(), name)
	return blockerAnswer{name, text}, err
}

// containRequest is the body of POST /v1/contain.
type containRequest struct {
	Session string `json:"session" jsonschema:"required"` // of the lock request
}

func (s *Server) contain(host Host, r *http.Request, body *containRequest) (any, error) {
	by := callerOf(r)
	of, err := host.Sessions().Of(body.Session, by.who.UID)
	if err == nil {
		err = of.Contain(by.socket())
	}
	return struct{}{}, by.notOwn(err, access.Change)
}

// evictRequest is the body of POST /v1/evict: an operator states that a host is dead, or requests
// that it leaves.
type evictRequest struct {
	Host        int       `json:"host" jsonschema:"required"`        // id of the host
	Incarnation *text.Hex `json:"incarnation" jsonschema:"required"` // the one that the operator was shown
	Forget      bool      `json:"forget"`                            // release the id for another machine
}

// recordPatience limits how long a verdict, or a request to a holder, may take to be written to the
// disk.
const recordPatience = 30 * time.Second

// evictRefusals are the errors of an eviction that was refused as invalid, and did not fail.
var evictRefusals = []error{evict.ErrNoHost, evict.ErrChanged, evict.ErrHasLeft, evict.ErrSelf, evict.ErrJoining, evict.ErrDead,
	evict.ErrNotLive, evict.ErrNoRoom}

// evictOutcome is the outcome of an eviction.
type evictOutcome string

const (
	evictDead  evictOutcome = "dead"  // the host is declared dead: its locks are free
	evictAsked evictOutcome = "asked" // to leave: it still renews its lease
)

// evictAnswer is the answer to POST /v1/evict.
type evictAnswer struct {
	Outcome evictOutcome `json:"outcome"`
}

func (s *Server) evict(host Host, r *http.Request, body *evictRequest) (any, error) {
	if body.Incarnation == nil {
		return nil, fmt.Errorf("%w: incarnation is missing: want that of the host, as GET /v1/status shows it", api.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(r.Context(), recordPatience)
	defer cancel()
	dead, err := host.Evict(ctx, body.Host, uint64(*body.Incarnation), body.Forget)
	if err != nil {
		e := api.ErrorOf(err)
		if slices.ContainsFunc(evictRefusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
			e.Code, e.Hint = api.CodeInvalid, "" // the message has the remedy
		}
		return nil, e
	}
	outcome := evictAsked
	if dead {
		outcome = evictDead
	}
	s.cfg.Log.Warn("host evicted by an operator", "host", body.Host, "outcome", outcome, "forget", body.Forget, "uid", callerOf(r).who.UID)
	return evictAnswer{outcome}, nil
}

// meetRequest is the body of POST /v1/meet.
type meetRequest struct {
	Host      int   `json:"host" jsonschema:"required"`       // id of the other host, which must run the check, too
	Rounds    int   `json:"rounds" jsonschema:"required"`     // the lower number of the two hosts applies
	TimeoutMS int64 `json:"timeout_ms" jsonschema:"required"` // how long to wait for the other host
}

func (s *Server) meet(host Host, r *http.Request, body *meetRequest) (any, error) {
	return host.Meet(r.Context(), measuring.MeetOptions{Host: body.Host, Rounds: body.Rounds, Timeout: session.Timeout(body.TimeoutMS)})
}
