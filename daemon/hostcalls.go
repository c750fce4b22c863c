package daemon

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/session"
)

// evictRequest is the body of POST /v1/evict: an operator states that a host is dead, or requests
// that it leaves.
type evictRequest struct {
	Host        int    `json:"host"`
	Incarnation uint64 `json:"incarnation,string"` // the one that the operator was shown
	Forget      bool   `json:"forget"`             // release the id for another machine
}

func (s *Server) evict(host *Host, w http.ResponseWriter, r *http.Request) {
	var body evictRequest
	err := decode(r, &body)
	if hosts := host.disk.SB.Geometry.Hosts; err == nil && (body.Host < 1 || body.Host > hosts) {
		err = fmt.Errorf("%w: host %d, want 1 to %d", api.ErrInvalid, body.Host, hosts)
	}
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
	host.log.Warn("host evicted by an operator", "evicted_host_id", body.Host, "outcome", answer.Outcome, "forget", body.Forget, "uid", callerOf(r).who.UID)
	writeJSON(w, answer)
}

// meetRequest is the body of POST /v1/meet.
type meetRequest struct {
	Host      int   `json:"host"`
	Rounds    int   `json:"rounds"`
	TimeoutMS int64 `json:"timeout_ms"`
}

func (s *Server) meet(host *Host, w http.ResponseWriter, r *http.Request) {
	var body meetRequest
	err := decode(r, &body)
	var report *locks.MeetReport
	if err == nil {
		wait := time.Duration(min(body.TimeoutMS, session.MaxTimeout.Milliseconds())) * time.Millisecond
		report, err = host.Meet(r.Context(), locks.MeetOptions{Host: body.Host, Rounds: body.Rounds, Timeout: wait})
	}
	if err != nil {
		e := api.ErrorOf(err)
		writeError(w, e.Status(), e)
		return
	}
	writeJSON(w, report)
}
