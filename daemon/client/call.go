package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// call makes one of bakeryd's calls that answer at once, and reads the answer. It returns an *Error, ErrUnreachable,
// ErrProtocol, or the cause of ctx's end.
func (c *Client) call(ctx context.Context, method, path string, body, answer any) error {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://bakeryd"+path, &text)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	once := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, c.socket) },
	}}
	resp, err := once.Do(req)
	if err != nil {
		return c.broken(ctx, err)
	}
	defer resp.Body.Close()
	text.Reset()
	if _, err := text.ReadFrom(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return c.broken(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return refusalOf(resp.Status, text.Bytes())
	}
	if err := json.Unmarshal(text.Bytes(), answer); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// broken names the error of a call that had no answer.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var urlErr *url.Error // its text repeats a URL that means nothing to anybody
	if errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	if errors.Is(err, ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// refusalOf is the error that an answer carries.
func refusalOf(status string, body []byte) error {
	var answer struct {
		Error *Error `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%w: status %s: %w", ErrProtocol, status, err)
	}
	if answer.Error == nil || answer.Error.Code == "" {
		return fmt.Errorf("%w: status %s without an error", ErrProtocol, status)
	}
	return answer.Error
}
