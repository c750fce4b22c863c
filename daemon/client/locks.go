package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// LockInfo is a lock as the directory of the lockspace shows it.
type LockInfo struct {
	Name     string `json:"name"`
	Lock     int    `json:"lock"`            // its number, the place on the disk
	Permits  int    `json:"permits"`         // exclusive holders at most
	Creation uint64 `json:"creation,string"` // another one if it was removed and made anew
}

// Create makes a lock that so many hosts may hold at once, 1 to the number of hosts. If it is there already with as many,
// it is left as it is, and created is false. It waits for as long as it takes, or until ctx ends: another host may be
// making a lock, or have died over it.
//
// It returns an *Error (api.CodePermits: it is there with others; api.CodeFull: there is no room), ErrUnreachable, ErrProtocol,
// or the cause of ctx's end; then the lock may be there or not.
func (c *Client) Create(ctx context.Context, name string, permits int) (lock LockInfo, created bool, err error) {
	var answer struct {
		LockInfo
		Created bool `json:"created"`
	}
	body := struct {
		Name    string `json:"name"`
		Permits int    `json:"permits"`
	}{name, permits}
	if err := c.callWithin(ctx, 0, http.MethodPost, "/v1/create", body, &answer); err != nil {
		return LockInfo{}, false, fmt.Errorf("create lock %q: %w", name, err)
	}
	if answer.Name != name || answer.Permits != permits {
		return LockInfo{}, false, fmt.Errorf("create lock %q: %w: it has made %q with %d permits", name, ErrProtocol, answer.Name, answer.Permits)
	}
	return answer.LockInfo, answer.Created, nil
}

// RemoveOptions say how long to wait for a lock that is to be removed. The zero value waits for as long as it takes.
type RemoveOptions struct {
	NonBlock bool          // remove it at once, or ErrBusy
	Timeout  time.Duration // not free within it: ErrTimeout; 0: none; rounded up to milliseconds
}

// Remove removes a lock as soon as it is free, waiting in the queue like one who would hold it. Nobody who uses the lock by
// name is stopped: who waits for it, or asks for it later, makes it anew, with one permit.
//
// It returns an *Error (api.CodeMissing: there is no such lock; or ErrBusy or ErrTimeout), ErrUnreachable, ErrProtocol, or
// the cause of ctx's end. After any of the last four the removal may be past stopping.
func (c *Client) Remove(ctx context.Context, name string, o RemoveOptions) error {
	body := struct {
		Name      string `json:"name"`
		TimeoutMS int64  `json:"timeout_ms"`
		NonBlock  bool   `json:"nonblock"`
	}{name, ceilMillis(o.Timeout), o.NonBlock}
	limit := time.Duration(0)
	if o.Timeout > 0 {
		limit = o.Timeout + callPatience
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

// Locks lists the locks by name, from the directory alone: it costs one read of that, however many there are. It returns
// an *Error (api.CodeDevice also if a part of the directory cannot be read; the list has the others then), ErrUnreachable,
// ErrProtocol, or the cause of ctx's end.
func (c *Client) Locks(ctx context.Context) ([]LockInfo, error) {
	var answer struct {
		Locks   []LockInfo `json:"locks"`
		Damaged string     `json:"damaged"`
	}
	if err := c.call(ctx, http.MethodGet, "/v1/locks", nil, &answer); err != nil {
		return nil, fmt.Errorf("list the locks: %w", err)
	}
	if answer.Damaged != "" {
		return answer.Locks, fmt.Errorf("list the locks: %w", &Error{Code: api.CodeDevice, Message: answer.Damaged,
			Hint: "bakeryctl check names the damaged record and what to do about it"})
	}
	return answer.Locks, nil
}
