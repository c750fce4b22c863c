package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/http1"
)

// callTimeout is how long bakeryd may take over a call that only waits for the device: longer than
// the 30 s after which bakeryd itself gives up and says why.
const callTimeout = 40 * time.Second

// Call makes a call of the API for which Client has no method, and whose answer is not a stream. It
// sends body, unless nil, as JSON, and decodes the answer into answer. It waits until the deadline of
// ctx, or for 40 s if there is none.
func (c *Client) Call(ctx context.Context, method, path string, body, answer any) error {
	return c.callWithin(ctx, callLimit(ctx), method, path, body, answer)
}

// callLimit returns the limit of Call: 0, which is none, if ctx has a deadline.
func callLimit(ctx context.Context) time.Duration {
	if _, own := ctx.Deadline(); own {
		return 0
	}
	return callTimeout
}

// callWithin is Call with another limit; 0 means no limit.
func (c *Client) callWithin(ctx context.Context, limit time.Duration, method, path string, body, answer any) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %v", ErrNoAnswer, limit))
		defer cancel()
	}
	r, err := c.send(ctx, maxCall, method, path, body)
	if err != nil {
		return err
	}
	defer r.Close()
	err = decode(r, answer)
	if !r.stop() {
		return context.Cause(ctx)
	}
	return err
}

type warningsKey struct{}

// WithWarnings returns a context for calls. If bakeryd ignores members of a request, because it is older
// than the client, the call passes its warning to f. Locks have Options.OnWarning.
func WithWarnings(ctx context.Context, f func(message string)) context.Context {
	return context.WithValue(ctx, warningsKey{}, f)
}

// Contain asks bakeryd to move this process into the cgroup of a session's command, so that bakeryd
// stops whatever it starts when the lock is lost. The process must be in the cgroup of the process
// that asked for the lock with Options.Witness or Confirm, and belong to the same user or root. The
// code is api.CodeLost if there is no such session, api.CodeUnavailable if bakeryd cannot do it.
func (c *Client) Contain(ctx context.Context, session string) error {
	return c.Call(ctx, "POST", "/v1/contain", map[string]string{"session": session}, new(struct{}))
}

// Open makes a GET whose answer is a stream, and returns the stream, to be closed. The end of ctx
// ends it.
func (c *Client) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := c.send(ctx, math.MaxInt64, "GET", path, nil)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// reply is the body of an answer.
type reply struct {
	io.Reader
	conn io.Closer
	stop func() bool // returns false if the end of the context has closed conn
}

// Close implements io.Closer.
func (r *reply) Close() error {
	r.stop()
	return r.conn.Close()
}

// send makes a request on a new connection, which the end of ctx closes, and reads the answer, at
// most limit bytes, up to its body.
func (c *Client) send(ctx context.Context, limit int64, method, path string, body any) (*reply, error) {
	text, err := json.Marshal(body)
	if body == nil {
		text = nil // rather than null
	}
	u, pathErr := url.Parse("http://bakeryd" + path)
	if err = cmp.Or(err, pathErr); err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	req := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: bakeryd\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, u.RequestURI(), len(text), text)
	conn, err := dial(ctx, c.socket)
	if err != nil {
		return nil, err
	}
	r := &reply{conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}
	warning := ""
	r.Reader, warning, err = roundTrip(conn, req, limit)
	if f, ok := ctx.Value(warningsKey{}).(func(string)); ok && warning != "" {
		f(warning)
	}
	if err != nil {
		_ = conn.Close()
		if !r.stop() {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return r, nil
}

// roundTrip sends a request and reads the answer, at most limit bytes. It returns the body, and a
// warning. An answer with a status other than 200 is an error.
func roundTrip(conn io.ReadWriter, request []byte, limit int64) (body io.Reader, warning string, err error) {
	if _, err := conn.Write(request); err != nil && !hungUp(err) {
		return nil, "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	a, err := http1.Read(conn, limit)
	switch {
	case err != nil:
		return nil, "", brokenOff(err)
	case a.Status == http1.StatusOK:
		return a.Body, a.Warning, nil
	}
	return nil, a.Warning, refusal(a)
}

// refusal returns the error in the body of an answer.
func refusal(a *http1.Answer) error {
	text, err := io.ReadAll(a.Body)
	if err != nil {
		return brokenOff(err)
	}
	var refused struct {
		Error *Error `json:"error"`
	}
	if err := json.Unmarshal(text, &refused); err != nil {
		return fmt.Errorf("%w: status %s: %w", ErrProtocol, a.Text, err)
	}
	if refused.Error == nil || refused.Error.Code == "" {
		return fmt.Errorf("%w: status %s without an error", ErrProtocol, a.Text)
	}
	return refused.Error
}

// maxCall bounds an answer. The list of 65,536 locks with the longest names is smaller.
const maxCall = 64 << 20

// decode decodes a body.
func decode(body io.Reader, answer any) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return brokenOff(err)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// LockInfo is a lock's entry in the lockspace's directory.
type LockInfo struct {
	Name     string `json:"name"`
	Number   int    `json:"number"`          // its place on the disk
	Permits  int    `json:"permits"`         // greatest number of exclusive holders
	Creation uint64 `json:"creation,string"` // changes if the lock is removed and created again
}

// Create creates a lock with 1 to N permits, N being the number of hosts. If it exists with the
// same number, Create changes nothing and returns created false. Create waits until ctx ends:
// another host may be creating a lock, or have died while doing so.
//
// The code is api.CodePermits if it exists with another number, api.CodeFull if the directory is
// full. If ctx ends first, the lock may exist or not.
func (c *Client) Create(ctx context.Context, name string, permits int) (lock LockInfo, created bool, err error) {
	var answer struct {
		LockInfo
		Created bool `json:"created"`
	}
	body := map[string]any{"name": name, "permits": permits}
	if err := c.callWithin(ctx, 0, "POST", "/v1/create", body, &answer); err != nil {
		return LockInfo{}, false, fmt.Errorf("create lock %q: %w", name, err)
	}
	if answer.Name != name || answer.Permits != permits {
		return LockInfo{}, false, fmt.Errorf("create lock %q: %w: it has made %q with %d permits", name, ErrProtocol, answer.Name, answer.Permits)
	}
	return answer.LockInfo, answer.Created, nil
}

// RemoveOptions say how long to wait for a lock that is to be removed, and when to keep it. The zero
// value waits without limit, and removes it with its value.
type RemoveOptions struct {
	NonBlock bool          // return ErrBusy instead of waiting
	Timeout  time.Duration // then ErrTimeout; 0: none; rounded up to milliseconds
	// IfNoValue keeps a lock that has a value: then the code is api.CodeValue. An older bakeryd refuses it
	// as invalid.
	IfNoValue bool
}

// Remove waits in the queue like an exclusive request, then removes the lock. It does not stop
// clients that use the lock by name: a client that waits for it, or asks for it later, creates it
// again with one permit.
//
// The *Error may be ErrBusy, ErrTimeout or ErrNoLock. After ErrTimeout or an error that is no *Error
// the lock may still be removed.
func (c *Client) Remove(ctx context.Context, name string, o RemoveOptions) error {
	body := map[string]any{"name": name, "timeout_ms": ceilMillis(o.Timeout), "nonblock": o.NonBlock}
	if o.IfNoValue {
		body["if_no_value"] = true
	}
	limit := time.Duration(0)
	if o.Timeout > 0 {
		limit = o.Timeout + callTimeout
	}
	var answer struct {
		Name string `json:"name"`
	}
	err := c.callWithin(ctx, limit, "POST", "/v1/remove", body, &answer)
	if err == nil && answer.Name != name {
		err = fmt.Errorf("%w: it has removed %q", ErrProtocol, answer.Name)
	}
	if err != nil {
		return fmt.Errorf("remove lock %q: %w", name, err)
	}
	return nil
}

// Locks lists the locks by name. It costs one read of the directory. The code is api.CodeDevice
// also if a part of the directory cannot be read; the list has the other locks then.
func (c *Client) Locks(ctx context.Context) ([]LockInfo, error) {
	var answer struct {
		Locks   []LockInfo `json:"locks"`
		Damaged string     `json:"damaged"`
	}
	if err := c.Call(ctx, "GET", "/v1/locks", nil, &answer); err != nil {
		return nil, fmt.Errorf("list the locks: %w", err)
	}
	if answer.Damaged != "" {
		return answer.Locks, fmt.Errorf("list the locks: %w", &Error{Code: api.CodeDevice, Message: answer.Damaged,
			Hint: "bakeryctl check names the damaged record and what to do about it"})
	}
	return answer.Locks, nil
}
