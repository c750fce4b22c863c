package client

import (
	"context"
	"net/http"
)

// Contain asks bakeryd to move this process into the cgroup of a session's command, so that bakeryd
// stops whatever it starts when the lock is lost. The process must be in the cgroup of the process
// that asked for the lock with Options.Witness or Confirm, and belong to the same user or root. It
// returns an *Error (api.CodeLost: there is no such session; api.CodeUnavailable: bakeryd cannot contain
// it), ErrUnreachable, ErrProtocol, or the cause of ctx's end.
func (c *Client) Contain(ctx context.Context, session string) error {
	var answer struct{}
	return c.Call(ctx, http.MethodPost, "/v1/contain", struct {
		Session string `json:"session"`
	}{session}, &answer)
}
