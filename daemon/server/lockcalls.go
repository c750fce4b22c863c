package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/session"
)

// named is a request that names a lock.
type named struct {
	Name string `json:"name"`
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
	TimeoutMS int64 `json:"timeout_ms"` // 0 if none
	NonBlock  bool  `json:"nonblock"`   // refuse as busy instead of waiting
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
	return body.named, host.LockManager().Remove(ctx, body.Name, body.NonBlock)
}

func (s *Server) locks(host Host, r *http.Request) (any, error) {
	return host.LockManager().Locks(r.Context())
}

// floorRequest is the body of POST /v1/floor.
type floorRequest struct {
	named
	Rounds int `json:"rounds"`
}

// floor handles POST /v1/floor. It is for root and bakeryd's own user, because it does nothing but
// load the device.
func (s *Server) floor(host Host, r *http.Request, body *floorRequest) (any, error) {
	return host.Floor(r.Context(), body.Name, body.Rounds)
}

// requestRequest is the body of POST /v1/request.
type requestRequest struct {
	named
	Message string `json:"message"`
}

// request answers with the holders that were sent the request.
func (s *Server) request(host Host, r *http.Request, body *requestRequest) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), recordPatience)
	defer cancel()
	asked, err := host.LockManager().Request(ctx, body.Name, body.Message)
	return map[string]any{"asked": asked}, err
}
