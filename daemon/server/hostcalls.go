package server

import (
	"context"
	"errors"
	"net/http"
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

func (s *Server) evict(host Host, w http.ResponseWriter, r *http.Request) {
	var body evictRequest
	err := decode(r, &body)
	dead := false
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), evictPatience)
		defer cancel()
		dead, err = host.Evict(ctx, body.Host, body.Incarnation, body.Forget)
	}
	if err != nil {
		e := api.ErrorOf(err)
		if isEvictRefusal(err) {
			e.Code = "invalid"
		}
		writeError(w, e.Status(), e)
		return
	}
	answer := evictAnswer{Outcome: "asked"}
	if dead {
		answer.Outcome = "dead"
	}
	s.cfg.Log.Warn("host evicted by an operator", "evicted_host_id", body.Host, "outcome", answer.Outcome, "forget", body.Forget, "uid", callerOf(r).who.UID)
	writeJSON(w, answer)
}

// evictAnswer is the outcome of an eviction.
type evictAnswer struct {
	// dead: its locks are free; asked: it still renews and was asked to leave
	Outcome string `json:"outcome"`
}

// evictPatience limits how long a verdict may take to be written.
const evictPatience = 30 * time.Second

// isEvictRefusal reports whether an eviction was refused as invalid, and did not fail.
func isEvictRefusal(err error) bool {
	for _, e := range []error{lease.ErrNoHost, lease.ErrChanged, lease.ErrHasLeft, lease.ErrSelf, lease.ErrJoining, lease.ErrDead,
		lease.ErrNotLive, lease.ErrNoRoom} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// meetRequest is the body of POST /v1/meet.
type meetRequest struct {
	Host      int   `json:"host"`
	Rounds    int   `json:"rounds"`
	TimeoutMS int64 `json:"timeout_ms"`
}

func (s *Server) meet(host Host, w http.ResponseWriter, r *http.Request) {
	var body meetRequest
	err := decode(r, &body)
	var report *measuring.MeetReport
	if err == nil {
		wait := time.Duration(min(body.TimeoutMS, session.MaxTimeout.Milliseconds())) * time.Millisecond
		report, err = host.Meet(r.Context(), measuring.MeetOptions{Host: body.Host, Rounds: body.Rounds, Timeout: wait})
	}
	if err != nil {
		e := api.ErrorOf(err)
		writeError(w, e.Status(), e)
		return
	}
	writeJSON(w, report)
}
