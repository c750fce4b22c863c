package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// createRequest is the body of POST /v1/create.
type createRequest struct {
	Name    string `json:"name"`
	Permits int    `json:"permits"` // limit of exclusive holders; 0: 1
}

func (c *createRequest) lockName() string { return c.Name }

// createAnswer describes the lock.
type createAnswer struct {
	directory.ListedLock
	Created bool `json:"created"` // false if it existed already
}

// removeRequest is the body of POST /v1/remove.
type removeRequest struct {
	Name      string `json:"name"`
	TimeoutMS int64  `json:"timeout_ms"` // 0 if none
	NonBlock  bool   `json:"nonblock"`   // refuse as busy instead of waiting
}

func (r *removeRequest) lockName() string { return r.Name }

// removeAnswer names the removed lock.
type removeAnswer struct {
	Name string `json:"name"`
}

func (s *Server) create(host Host, w http.ResponseWriter, r *http.Request) {
	var body createRequest
	err := decode(r, &body)
	var e layout.Entry
	var created bool
	if err == nil {
		e, created, err = host.LockManager().Create(r.Context(), body.Name, body.Permits)
	}
	if err != nil {
		failCall(w, err)
		return
	}
	writeJSON(w, createAnswer{directory.Listed(e), created})
}

func (s *Server) remove(host Host, w http.ResponseWriter, r *http.Request) {
	var body removeRequest
	err := decode(r, &body)
	if err == nil && body.TimeoutMS < 0 {
		err = fmt.Errorf("%w: timeout_ms %d, want 0 or more", api.ErrInvalid, body.TimeoutMS)
	}
	if err == nil {
		ctx := r.Context()
		if body.TimeoutMS > 0 {
			limit := time.Duration(min(body.TimeoutMS, session.MaxTimeout.Milliseconds())) * time.Millisecond
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, limit, api.ErrTimeout)
			defer cancel()
		}
		err = host.LockManager().Remove(ctx, body.Name, body.NonBlock)
	}
	if err != nil {
		failCall(w, err)
		return
	}
	writeJSON(w, removeAnswer{Name: body.Name})
}

func (s *Server) locks(host Host, w http.ResponseWriter, r *http.Request) {
	list, err := host.LockManager().Locks(r.Context())
	if err != nil {
		failCall(w, err)
		return
	}
	writeJSON(w, list)
}

// failCall answers a call that is not a stream with an error. Here a busy lock is an error status;
// in a stream it is not.
func failCall(w http.ResponseWriter, err error) {
	e := api.ErrorOf(err)
	status := e.Status()
	if status == http.StatusOK {
		status = http.StatusConflict
	}
	writeError(w, status, e)
}

// floorRequest is the body of POST /v1/floor.
type floorRequest struct {
	Name   string `json:"name"`
	Rounds int    `json:"rounds"`
}

func (f *floorRequest) lockName() string { return f.Name }

// floor handles POST /v1/floor. It is for root and bakeryd's own user, because it does nothing but
// load the device.
func (s *Server) floor(host Host, w http.ResponseWriter, r *http.Request) {
	var body floorRequest
	err := decode(r, &body)
	var f *measuring.Floor
	if err == nil {
		f, err = host.Floor(r.Context(), body.Name, body.Rounds)
	}
	if err != nil {
		failCall(w, err)
		return
	}
	writeJSON(w, f)
}

// requestRequest is the body of POST /v1/request.
type requestRequest struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

func (r *requestRequest) lockName() string { return r.Name }

func (s *Server) request(host Host, w http.ResponseWriter, r *http.Request) {
	var body requestRequest
	err := decode(r, &body)
	var answer requestAnswer
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), askPatience)
		defer cancel()
		answer.Asked, err = host.LockManager().Request(ctx, body.Name, body.Message)
	}
	if err != nil {
		e := api.ErrorOf(err)
		writeError(w, e.Status(), e)
		return
	}
	writeJSON(w, answer)
}

// requestAnswer lists the holders that were sent the request.
type requestAnswer struct {
	Asked []locks.Asked `json:"asked"`
}

// askPatience limits how long a request may take to be written.
const askPatience = 30 * time.Second
