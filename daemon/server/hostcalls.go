package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/session"
)

// evictRequest is the body of POST /v1/evict: an operator states that a host is dead, or requests
// that it leaves.
type evictRequest struct {
	Host        int    `json:"host"`
	Incarnation uint64 `json:"incarnation,string"` // the one that the operator was shown
	Forget      bool   `json:"forget"`             // release the id for another machine
}

// recordPatience limits how long a verdict, or a request to a holder, may take to be written to the
// disk.
const recordPatience = 30 * time.Second

// evictRefusals are the errors of an eviction that was refused as invalid, and did not fail.
var evictRefusals = []error{lease.ErrNoHost, lease.ErrChanged, lease.ErrHasLeft, lease.ErrSelf, lease.ErrJoining, lease.ErrDead,
	lease.ErrNotLive, lease.ErrNoRoom}

func (s *Server) evict(host Host, r *http.Request, body *evictRequest) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), recordPatience)
	defer cancel()
	dead, err := host.Evict(ctx, body.Host, body.Incarnation, body.Forget)
	if err != nil {
		e := api.ErrorOf(err)
		if slices.ContainsFunc(evictRefusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
			e.Code = api.CodeInvalid
		}
		return nil, e
	}
	outcome := "asked" // to leave: it still renews
	if dead {
		outcome = "dead" // its locks are free
	}
	s.cfg.Log.Warn("host evicted by an operator", "evicted_host_id", body.Host, "outcome", outcome, "forget", body.Forget, "uid", callerOf(r).who.UID)
	return map[string]string{"outcome": outcome}, nil
}

// meetRequest is the body of POST /v1/meet.
type meetRequest struct {
	Host      int   `json:"host"`
	Rounds    int   `json:"rounds"`
	TimeoutMS int64 `json:"timeout_ms"`
}

func (s *Server) meet(host Host, r *http.Request, body *meetRequest) (any, error) {
	return host.Meet(r.Context(), measuring.MeetOptions{Host: body.Host, Rounds: body.Rounds, Timeout: session.Timeout(body.TimeoutMS)})
}
