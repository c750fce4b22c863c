package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// evictRequest is the body of POST /v1/evict: an operator states that a host is dead, or requests
// that it leaves.
type evictRequest struct {
	Host        int    `json:"host"`
	Incarnation uint64 `json:"incarnation,string"` // the one that the operator was shown
	Forget      bool   `json:"forget"`             // release the id for another machine
}

// evictAnswer is the outcome of an eviction.
type evictAnswer struct {
	// dead: its locks are free; asked: it still renews and was asked to leave
	Outcome string `json:"outcome"`
}

// Evict publishes that a host is dead. If the host still renews, it is asked to leave instead and
// dead is false: no host acts on that before it has left. Evict returns when that is durable, or
// the reasons of package lease.
func (d *Daemon) Evict(ctx context.Context, host int, incarnation uint64, forget bool) (dead bool, err error) {
	err = d.mem.Evict(host, incarnation, forget)
	if err != nil {
		return false, err // names the host and the reason
	}
	d.cfg.Tally.Evictions.Add(1)
	if host == d.mem.ID() {
		return false, nil // this host leaves once its holders have stopped
	}
	for {
		known, changed := d.mem.Known()
		h := known[host-1]
		switch {
		case h.Incarnation != incarnation || h.State == layout.StateLeft || h.Gone && (h.Forgotten || !forget):
			return true, nil
		case d.mem.HasAsked(host, incarnation):
			return false, nil
		}
		select {
		case <-changed:
		case <-d.mem.Over():
			return false, fmt.Errorf("evict host %d: %w: %w", host, api.ErrUnavailable, api.ErrLeaseLost)
		case <-ctx.Done():
			return false, fmt.Errorf("evict host %d: %w", host, context.Cause(ctx))
		}
	}
}

// evictPatience limits how long a verdict may take to be written.
const evictPatience = 30 * time.Second

func (s *Server) evict(d *Daemon, w http.ResponseWriter, r *http.Request) {
	var body evictRequest
	err := decode(r, &body)
	if hosts := d.sb.Geometry.Hosts; err == nil && (body.Host < 1 || body.Host > hosts) {
		err = fmt.Errorf("%w: host %d, want 1 to %d", api.ErrInvalid, body.Host, hosts)
	}
	dead := false
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), evictPatience)
		defer cancel()
		dead, err = d.Evict(ctx, body.Host, body.Incarnation, body.Forget)
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
	d.log.Warn("host evicted by an operator", "evicted_host_id", body.Host, "outcome", answer.Outcome, "forget", body.Forget, "uid", callerOf(r).who.UID)
	writeJSON(w, answer)
}

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
