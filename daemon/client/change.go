package client

import (
	"context"
	"fmt"
	"net/url"
)

// Access changes a hold. It needs the hold's session and token, which the holder and the commands
// under it know. bakeryd grants access only to the user that took the lock, and to root.
type Access struct {
	client  *Client
	session string
	token   Token
}

// Access returns the access to a hold of this bakeryd. It does no IO.
func (c *Client) Access(session string, token Token) *Access {
	return &Access{client: c, session: session, token: token}
}

// SetMode changes how the lock is held. bakeryd grants or refuses (ErrUpgrade) exclusive mode
// immediately. Setting the current mode again is not an error, so SetMode may be repeated.
//
// While bakeryd restarts, SetMode retries until ctx ends. It returns ErrUpgrade, ErrLost if the
// hold is over, another *Error, ErrProtocol, or the cause of ctx's end; in the last case the mode
// may have changed.
func (a *Access) SetMode(ctx context.Context, mode Mode) error {
	_, err := a.setMode(ctx, mode)
	return err
}

// setMode also returns the number of the change.
func (a *Access) setMode(ctx context.Context, mode Mode) (change uint64, err error) {
	var answer struct {
		Mode   Mode   `json:"mode"`
		Change uint64 `json:"change"`
	}
	body := map[string]any{"session": a.session, "token": a.token, "mode": mode}
	err = a.callUntilAnswered(ctx, "/v1/mode", body, &answer)
	if err == nil && answer.Mode != mode {
		err = fmt.Errorf("%w: mode %v, asked for %v", ErrProtocol, answer.Mode, mode)
	}
	return answer.Change, err
}

// SetValue sets the value of the lock, at most MaxValue bytes; an empty one clears it. The
// hold must be exclusive. The value is on the disk when SetValue returns. Errors are as for
// SetMode.
func (a *Access) SetValue(ctx context.Context, value []byte) error {
	if value == nil {
		value = []byte{} // nil would be encoded as null
	}
	body := map[string]any{"session": a.session, "token": a.token, "value": value}
	return a.callUntilAnswered(ctx, "/v1/value", body, new(struct{}))
}

// callUntilAnswered repeats a call until bakeryd answers it. The call must be repeatable.
func (a *Access) callUntilAnswered(ctx context.Context, path string, body, answer any) error {
	var pause backoff
	for {
		err := a.client.callWithin(ctx, answerTimeout, "POST", path, body, answer)
		if !transient(err) {
			return err
		}
		if why := pause.sleep(ctx, lastPause); why != nil {
			return fmt.Errorf("%w: %w", err, why)
		}
	}
}

// Session returns the id by which bakeryd knows the hold. Together with the token it gives Access.
func (h *Hold) Session() string { return h.session.request.Session }

// Mode returns the mode that bakeryd last reported. Another process that has Access may change it,
// too.
func (h *Hold) Mode() Mode { return locked(&h.mu, &h.mode) }

// SetMode is Access.SetMode, but retries no longer than the hold lasts.
func (h *Hold) SetMode(ctx context.Context, mode Mode) error {
	ctx, stop := until(ctx, h.over.context())
	defer stop()
	change, err := h.access().setMode(ctx, mode)
	if err != nil {
		return fmt.Errorf("hold %q %v: %w", h.Name, mode, err)
	}
	h.applyMode(mode, change)
	return nil
}

// SetValue is Access.SetValue, but retries no longer than the hold lasts.
func (h *Hold) SetValue(ctx context.Context, value []byte) error {
	ctx, stop := until(ctx, h.over.context())
	defer stop()
	if err := h.access().SetValue(ctx, value); err != nil {
		return fmt.Errorf("set the value of %q: %w", h.Name, err)
	}
	return nil
}

func (h *Hold) access() *Access {
	return h.session.client.Access(h.Session(), h.Token())
}

// applyMode sets the mode that bakeryd reports, unless a later change is known: the answer to a
// change and the event of an earlier one arrive in any order.
func (h *Hold) applyMode(mode Mode, change uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if change >= h.change {
		h.mode, h.change = mode, change
	}
}

// Value is the value of a lock, which its holders set for others to read.
type Value struct {
	Value    []byte `json:"value"` // nil if none
	Token    Token  `json:"token"` // of the hold that set or cleared it; 0 if no hold did
	Host     int    `json:"host"`  // host of that hold; 0 if none
	HostName string `json:"host_name"`
}

// Value returns the value of a lock that was set under the highest token, even if its writer is
// dead. The *Error may be ErrNoLock.
func (c *Client) Value(ctx context.Context, name string) (Value, error) {
	var answer struct {
		Name string `json:"name"`
		Value
	}
	err := c.callWithin(ctx, 3*answerTimeout, "GET", "/v1/value?name="+url.QueryEscape(name), nil, &answer)
	if err == nil && answer.Name != name {
		err = fmt.Errorf("%w: the value of %q, asked for that of %q", ErrProtocol, answer.Name, name)
	}
	if err != nil && codeOf(err) == "" { // a refusal contains the lock's name
		err = fmt.Errorf("value of %q: %w", name, err)
	}
	return answer.Value, err
}
