// Package call makes calls of bakeryd for which package client has no function, and gives the
// errors of bakeryd an exit code and a hint. It knows HTTP and the socket, not what is asked. It
// imports cli of bakeryctl and the client.
package call

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
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// Patience is how long bakeryd may take to read the lockspace.
const Patience = 30 * time.Second

// The hints of a bakeryd that cannot be asked.
const (
	hintDown   = "is bakeryd running? systemctl status bakeryd"
	hintClosed = "the socket is for root, bakeryd's own user and its group, which is bakery as a rule"
)

// Ask makes a call of bakeryd's and reads its answer.
func Ask(ctx context.Context, socket, method, call string, body, answer any) error {
	resp, err := Answer(ctx, socket, method, call, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return Unreachable(socket, fmt.Errorf("read its answer: %w", err))
	}
	return nil
}

// Unreachable returns the error of a bakeryd that gave no answer.
func Unreachable(socket string, err error) error {
	hint := hintDown
	if errors.Is(err, syscall.EACCES) {
		hint = hintClosed
	}
	return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("ask bakeryd at %s: %w", socket, err), Hint: hint}
}

// OrDevice adds to the hint of an error that a command which has --device can do without bakeryd,
// if that does not run.
func OrDevice(err error) error {
	var f *cli.Failure
	if errors.As(err, &f) && f.Hint == hintDown {
		f.Hint += ", or use --device"
	}
	return err
}

// Answer makes a call of bakeryd's and returns its answer, to be read and closed, unless that is a
// refusal.
func Answer(ctx context.Context, socket, method, call string, body any) (*http.Response, error) {
	unix := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return nil, Unreachable(socket, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://bakeryd"+call, &text)
	if err != nil {
		return nil, Unreachable(socket, err)
	}
	resp, err := unix.Do(req)
	if err != nil {
		var urlErr *url.Error // its text repeats a URL that means nothing to anybody
		if errors.As(err, &urlErr) {
			err = urlErr.Err
		}
		return nil, Unreachable(socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// refusal makes an error of an answer that is no report.
func refusal(resp *http.Response) error {
	var said struct {
		Error struct{ Code, Message, Hint string }
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || json.Unmarshal(body, &said) != nil || said.Error.Message == "" {
		said.Error.Message = "bakeryd answered " + resp.Status
	}
	f := &cli.Failure{Code: cli.ExitUnavailable, Err: errors.New(said.Error.Message), Hint: said.Error.Hint}
	switch said.Error.Code {
	case "device":
		f.Code = cli.ExitNoDevice
		if f.Hint == "" {
			f.Hint = "dmesg and the log of bakeryd tell what is wrong with the device"
		}
	case "free", "missing":
		f.Code = cli.ExitConflict
	case "invalid":
		f.Code = cli.ExitUsage
	case "forbidden":
		f.Code = cli.ExitForbidden
	}
	return f
}
