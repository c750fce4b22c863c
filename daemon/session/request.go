package session

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
)

const maxTimeout = 365 * 24 * time.Hour

// Timeout returns the timeout of a request in milliseconds, at most maxTimeout.
func Timeout(ms int64) time.Duration {
	return time.Duration(min(ms, maxTimeout.Milliseconds())) * time.Millisecond
}

// Validate returns an error for a request that is invalid whatever the lock.
func Validate(r *api.LockRequest) error {
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
