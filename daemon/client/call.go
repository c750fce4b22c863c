package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// callTimeout is how long bakeryd may take over a call that only waits for the device.
const callTimeout = 30 * time.Second

// Call makes a call of the API for which Client has no method, and whose answer is not a stream. It
// sends body, unless nil, as JSON, and decodes the answer into answer. It waits for callTimeout at
// most. It returns an *Error, ErrUnreachable, ErrProtocol, or the cause of ctx's end.
func (c *Client) Call(ctx context.Context, method, path string, body, answer any) error {
	return c.callWithin(ctx, callTimeout, method, path, body, answer)
}

// callWithin is Call with another limit; 0 means no limit.
func (c *Client) callWithin(ctx context.Context, limit time.Duration, method, path string, body, answer any) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: no answer within %v", ErrUnreachable, limit))
		defer cancel()
	}
	req, err := request(method, path, body)
	if err != nil {
		return err
	}
	conn, err := dial(ctx, c.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = roundTrip(conn, req, answer)
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

// Open makes a GET whose answer is a stream, and returns the stream, to be closed. The end of ctx
// ends it. It returns an *Error, ErrUnreachable, ErrProtocol, or the cause of ctx's end.
func (c *Client) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := request(http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	conn, err := dial(ctx, c.socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	fail := func(err error) (io.ReadCloser, error) {
		_ = conn.Close()
		if !stop() {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if err := req.Write(conn); err != nil && !hungUp(err) {
		return fail(fmt.Errorf("%w: %w", ErrUnreachable, err))
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return fail(brokenOff(err))
	}
	if resp.StatusCode == http.StatusOK {
		return stream{resp.Body, conn, stop}, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCall))
	if err != nil {
		return fail(brokenOff(err))
	}
	return fail(refusal(resp.Status, text))
}

// stream is the body of an answer that arrives over time.
type stream struct {
	io.Reader
	conn io.Closer
	stop func() bool
}

func (s stream) Close() error {
	s.stop()
	return s.conn.Close()
}

// request returns an HTTP request of the API.
func request(method, path string, body any) (*http.Request, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("write the request: %w", err)
		}
	}
	req, err := http.NewRequest(method, "http://bakeryd"+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	return req, nil
}

// roundTrip sends a request and reads all of the answer, at most maxCall bytes.
func roundTrip(conn io.ReadWriter, req *http.Request, answer any) error {
	if err := req.Write(conn); err != nil && !hungUp(err) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	budget := &io.LimitedReader{R: conn, N: maxCall}
	fail := func(err error) error {
		if budget.N <= 0 {
			return fmt.Errorf("%w: an answer of more than %d bytes", ErrProtocol, maxCall)
		}
		return brokenOff(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(budget), req)
	if err != nil {
		return fail(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, answer); err != nil {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		return nil
	}
	return refusal(resp.Status, text)
}

// refusal returns the error in the body of an answer with a status other than 200.
func refusal(status string, text []byte) error {
	var refused struct {
		Error *Error `json:"error"`
	}
	if err := json.Unmarshal(text, &refused); err != nil {
		return fmt.Errorf("%w: status %s: %w", ErrProtocol, status, err)
	}
	if refused.Error == nil || refused.Error.Code == "" {
		return fmt.Errorf("%w: status %s without an error", ErrProtocol, status)
	}
	return refused.Error
}

// maxCall bounds an answer. The list of 65,536 locks with the longest names is smaller.
const maxCall = 64 << 20
