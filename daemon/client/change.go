package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/bakeryd/bakeryd/layout"
)

// Access is what one may do with a hold who knows its session and its token: the holder, and the commands that run
// under it. bakeryd grants it to the user only who took the lock, and to root.
type Access struct {
	client  *Client
	session string
	token   layout.Ticket
}

// Access returns the access to a hold of this bakeryd. It does no IO.
func (c *Client) Access(session string, token layout.Ticket) *Access {
	return &Access{client: c, session: session, token: token}
}

// SetMode changes how the lock is held. Exclusive is granted at once or refused with ErrUpgrade, and never waited
// for. The mode that it has is no error, so SetMode may be repeated.
//
// A bakeryd that is being restarted is waited for until ctx ends. SetMode returns ErrUpgrade, ErrLost if the hold is
// over, another *Error, ErrProtocol, or the cause of ctx's end: then the change may have come about.
func (a *Access) SetMode(ctx context.Context, mode layout.Mode) error {
	_, err := a.setMode(ctx, mode)
	return err
}

// setMode also returns the number of the change.
func (a *Access) setMode(ctx context.Context, mode layout.Mode) (change uint64, err error) {
	var answer struct {
		Mode   layout.Mode `json:"mode"`
		Change uint64      `json:"change"`
	}
	err = a.insist(ctx, "/v1/mode", struct {
		Session string        `json:"session"`
		Token   layout.Ticket `json:"token"`
		Mode    layout.Mode   `json:"mode"`
	}{a.session, a.token, mode}, &answer)
	if err == nil && answer.Mode != mode {
		err = fmt.Errorf("%w: mode %v, asked for %v", ErrProtocol, answer.Mode, mode)
	}
	return answer.Change, err
}

// SetValue sets the value of the lock, of at most layout.MaxValue bytes; an empty one clears it. The hold must be
// exclusive. The value is on the disk when SetValue returns; errors are as for SetMode.
func (a *Access) SetValue(ctx context.Context, value []byte) error {
	if value == nil {
		value = []byte{} // nil would be written as null
	}
	var answer struct{}
	return a.insist(ctx, "/v1/value", struct {
		Session string        `json:"session"`
		Token   layout.Ticket `json:"token"`
		Value   []byte        `json:"value"`
	}{a.session, a.token, value}, &answer)
}

// insist makes a call that may be repeated until bakeryd has an answer to it.
func (a *Access) insist(ctx context.Context, path string, body, answer any) error {
	var pause backoff
	for {
		err := a.once(ctx, path, body, answer)
		if ctx.Err() != nil || !passing(err) {
			return err
		}
		if why := pause.sleep(ctx, lastPause); why != nil {
			return fmt.Errorf("%w: %w", err, why)
		}
	}
}

func (a *Access) once(ctx context.Context, path string, body, answer any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: no answer within %v", ErrUnreachable, patience))
	defer cancel()
	return a.client.call(ctx, http.MethodPost, path, body, answer)
}

// Session returns the id by which bakeryd knows the hold: with the token it gives Access to it.
func (h *Hold) Session() string { return h.session.id }

// Mode returns how the lock is held, as far as bakeryd has told: a process that has Access may change it too.
func (h *Hold) Mode() layout.Mode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode
}

// SetMode changes how the lock is held, as Access.SetMode does, but waits for bakeryd no longer than the hold lasts.
func (h *Hold) SetMode(ctx context.Context, mode layout.Mode) error {
	ctx, stop := h.whileHeld(ctx)
	defer stop()
	change, err := h.access().setMode(ctx, mode)
	if err != nil {
		return fmt.Errorf("hold %q %v: %w", h.Name, mode, err)
	}
	h.hear(mode, change)
	return nil
}

// SetValue sets the value of the lock, as Access.SetValue does, but waits for bakeryd no longer than the hold lasts.
func (h *Hold) SetValue(ctx context.Context, value []byte) error {
	ctx, stop := h.whileHeld(ctx)
	defer stop()
	if err := h.access().SetValue(ctx, value); err != nil {
		return fmt.Errorf("set the value of %q: %w", h.Name, err)
	}
	return nil
}

func (h *Hold) access() *Access { return h.session.client.Access(h.session.id, h.token) }

// whileHeld returns a context that ends with the hold as well.
func (h *Hold) whileHeld(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.over.context(), func() {
		err := h.Err()
		if err == nil {
			err = fmt.Errorf("%w: it was let go", ErrLost)
		}
		cancel(err)
	})
	return ctx, func() { stop(); cancel(nil) }
}

// hear takes in the mode that bakeryd tells, unless a later one is known: the
// answer to a change and the event of one before it may come in any order.
func (h *Hold) hear(mode layout.Mode, change uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if change >= h.change {
		h.mode, h.change = mode, change
	}
}

// Value is what a lock's holder left for others to read.
type Value struct {
	Value    []byte        // nil: there is none
	Token    layout.Ticket // of the hold under which it was set or cleared; 0: none ever was
	Host     int           // who did that; 0: nobody
	HostName string
}

// Value returns the value of a lock: the one that was set under the highest token, whether its writer lives or not.
// It returns an *Error, which may be ErrNoLock, ErrUnreachable, ErrProtocol, or the cause of ctx's end.
func (c *Client) Value(ctx context.Context, name string) (Value, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*patience, fmt.Errorf("%w: no answer within %v", ErrUnreachable, 3*patience))
	defer cancel()
	var answer struct {
		Name     string        `json:"name"`
		Value    []byte        `json:"value"`
		Token    layout.Ticket `json:"token"`
		Host     int           `json:"host"`
		HostName string        `json:"host_name"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/value?name="+url.QueryEscape(name), nil, &answer)
	if err == nil && answer.Name != name {
		err = fmt.Errorf("%w: the value of %q, asked for that of %q", ErrProtocol, answer.Name, name)
	}
	var refusal *Error
	if err != nil && !errors.As(err, &refusal) { // a refusal names the lock itself
		err = fmt.Errorf("value of %q: %w", name, err)
	}
	if err != nil {
		return Value{}, err
	}
	return Value{Value: answer.Value, Token: answer.Token, Host: answer.Host, HostName: answer.HostName}, nil
}
