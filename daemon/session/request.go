package session

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/layout"
)

// LockRequest is the body of POST /v1/lock, and the lock member of a link's line.
type LockRequest struct {
	Name      string      `json:"name"`
	Mode      layout.Mode `json:"mode"`       // exclusive if not given
	NonBlock  bool        `json:"nonblock"`   // refuse as busy instead of waiting
	TimeoutMS int64       `json:"timeout_ms"` // 0 if none
	Permits   int         `json:"permits"`    // 0: the lock's
	PID       int         `json:"pid"`        // 0: the peer's
	Command   string      `json:"command"`
	// 32 hex digits chosen by the client, to reconnect to; empty if none
	Session string `json:"session"`
	// reconnect to the hold with this token, or be refused; 0 requests the lock
	Token   layout.Ticket `json:"token"`
	Witness bool          `json:"witness"` // create a FIFO that the command holds the lock by

	// on a link: pass the lock on if the client does not confirm the grant in time
	Confirm bool `json:"confirm"`
	// notify the holder of requests for the lock; repeated when the client reconnects
	Requests bool `json:"requests"`
}

const MaxTimeout = 365 * 24 * time.Hour

func (r *LockRequest) timeout() time.Duration {
	return time.Duration(min(r.TimeoutMS, MaxTimeout.Milliseconds())) * time.Millisecond
}

func (r *LockRequest) Validate() error {
	if r.TimeoutMS < 0 {
		return fmt.Errorf("%w: timeout_ms %d, want 0 or more", api.ErrInvalid, r.TimeoutMS)
	}
	if r.Session != "" {
		if err := handover.CheckSessionID(r.Session); err != nil {
			return fmt.Errorf("%w: %w", api.ErrInvalid, err)
		}
	}
	if r.Token != 0 && r.Session == "" {
		return fmt.Errorf("%w: token %v without the session that it was granted to", api.ErrInvalid, r.Token)
	}
	return nil
}
