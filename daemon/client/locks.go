package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// LockInfo is a lock's entry in the lockspace's directory.
type LockInfo struct {
	Name     string `json:"name"`
	Lock     int    `json:"lock"`            // its number: the place on the disk
	Permits  int    `json:"permits"`         // greatest number of exclusive holders
	Creation uint64 `json:"creation,string"` // changes if the lock is removed and created again
}

// Create creates a lock with 1 to N permits, N being the number of hosts. If it exists with the
// same number, Create changes nothing and returns created false. Create waits until ctx ends:
// another host may be creating a lock, or have died while doing so.
//
// It returns an *Error (api.CodePermits: it exists with another number; api.CodeFull: the directory is
// full), ErrUnreachable, ErrProtocol, or the cause of ctx's end; in the last case the lock may
// exist or not.
func (c *Client) Create(ctx context.Context, name string, permits int) (lock LockInfo, created bool, err error) {
	var answer struct {
		LockInfo
		Created bool `json:"created"`
	}
	body := map[string]any{"name": name, "permits": permits}
	if err := c.callWithin(ctx, 0, http.MethodPost, "/v1/create", body, &answer); err != nil {
		return LockInfo{}, false, fmt.Errorf("create lock %q: %w", name, err)
	}
	if answer.Name != name || answer.Permits != permits {
		return LockInfo{}, false, fmt.Errorf("create lock %q: %w: it has made %q with %d permits", name, ErrProtocol, answer.Name, answer.Permits)
	}
	return answer.LockInfo, answer.Created, nil
}

// RemoveOptions say how long to wait for a lock that is to be removed. The zero value waits without
// limit.
type RemoveOptions struct {
	NonBlock bool          // return ErrBusy instead of waiting
	Timeout  time.Duration // then ErrTimeout; 0: none; rounded up to milliseconds
}

// Remove waits in the queue like an exclusive request, then removes the lock. It does not stop
// clients that use the lock by name: a client that waits for it, or asks for it later, creates it
// again with one permit.
//
// It returns an *Error (api.CodeMissing: there is no such lock; or ErrBusy or ErrTimeout),
// ErrUnreachable, ErrProtocol, or the cause of ctx's end. After any of the last four the lock may
// still be removed.
func (c *Client) Remove(ctx context.Context, name string, o RemoveOptions) error {
	body := map[string]any{"name": name, "timeout_ms": ceilMillis(o.Timeout), "nonblock": o.NonBlock}
	limit := time.Duration(0)
	if o.Timeout > 0 {
		limit = o.Timeout + callTimeout
	}
	var answer struct {
		Name string `json:"name"`
	}
	err := c.callWithin(ctx, limit, http.MethodPost, "/v1/remove", body, &answer)
	if err == nil && answer.Name != name {
		err = fmt.Errorf("%w: it has removed %q", ErrProtocol, answer.Name)
	}
	if err != nil {
		return fmt.Errorf("remove lock %q: %w", name, err)
	}
	return nil
}

// Locks lists the locks by name. It costs one read of the directory. It returns an *Error
// (api.CodeDevice also if a part of the directory cannot be read; the list has the other locks then),
// ErrUnreachable, ErrProtocol, or the cause of ctx's end.
func (c *Client) Locks(ctx context.Context) ([]LockInfo, error) {
	var answer struct {
		Locks   []LockInfo `json:"locks"`
		Damaged string     `json:"damaged"`
	}
	if err := c.Call(ctx, http.MethodGet, "/v1/locks", nil, &answer); err != nil {
		return nil, fmt.Errorf("list the locks: %w", err)
	}
	if answer.Damaged != "" {
		return answer.Locks, fmt.Errorf("list the locks: %w", &Error{Code: api.CodeDevice, Message: answer.Damaged,
			Hint: "bakeryctl check names the damaged record and what to do about it"})
	}
	return answer.Locks, nil
}
