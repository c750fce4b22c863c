package main

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

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// statusPatience is how long bakeryd may take to read the lockspace.
const statusPatience = 30 * time.Second

const (
	hintDown   = "is bakeryd running? systemctl status bakeryd"
	hintClosed = "the socket is for root, bakeryd's own user and its group, which is bakery as a rule"
)

func newStatus(a *app) *cobra.Command {
	var device string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the hosts of the lockspace, the locks, who holds them and who waits",
		Long: `Show the hosts of the lockspace, the locks, who holds them and who waits.

Without --device bakeryd is asked. With it the device is read, without joining
and without bakeryd; whether a host is alive does not show there.

STATE is "held, weak" if bakeryd cannot stop all processes of a command of this host:
it has no cgroup. The field containment of --json states why. STATE is "held, orphan"
if the bakeryctl of a lock is gone and its command, or what that left running, keeps the
lock. PID is then the first of these processes, and otherwise bakeryctl.`,
		Example: `  bakeryctl status
  bakeryctl status --json | jq '.locks[] | select(.holders != [])'
  bakeryctl status --device /dev/mapper/locks`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := a.status(cmd.Context(), device)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.stdout, report)
			}
			return showReport(a.stdout, report, time.Now(), a.paint())
		},
	}
	cmd.Flags().StringVar(&device, "device", "", "read this `PATH` instead of asking bakeryd")
	cmd.Flags().BoolVar(&asJSON, "json", false, "show it as JSON")
	a.colourFlag(cmd)
	return cmd
}

// status reads the device, or asks bakeryd if none is given.
func (a *app) status(ctx context.Context, device string) (*report.Report, error) {
	if device != "" {
		return statusOfDevice(device)
	}
	report, err := statusOfDaemon(ctx, a.socket)
	var f *failure
	if errors.As(err, &f) && f.hint == hintDown {
		f.hint += ", or use --device"
	}
	return report, err
}

func statusOfDevice(path string) (*report.Report, error) {
	dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
	if err != nil {
		return nil, &failure{code: exitNoDevice, err: err, hint: deviceHint(err)}
	}
	defer dev.Close()
	snapshot, err := lockspace.Inspect(dev)
	if err != nil {
		return nil, &failure{code: exitNoDevice, err: err, hint: deviceHint(err)}
	}
	return report.Of(snapshot), nil
}

func statusOfDaemon(ctx context.Context, socket string) (*report.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	report := new(report.Report)
	if err := ask(ctx, socket, http.MethodGet, "/v1/status", nil, report); err != nil {
		return nil, err
	}
	return report, nil
}

// ask makes a call of bakeryd's and reads its answer.
func ask(ctx context.Context, socket, method, call string, body, answer any) error {
	resp, err := answerOf(ctx, socket, method, call, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return unreachable(socket, fmt.Errorf("read its answer: %w", err))
	}
	return nil
}

func unreachable(socket string, err error) error {
	hint := hintDown
	if errors.Is(err, syscall.EACCES) {
		hint = hintClosed
	}
	return &failure{code: exitUnavailable, err: fmt.Errorf("ask bakeryd at %s: %w", socket, err), hint: hint}
}

// answerOf makes a call of bakeryd's and returns its answer, to be read and closed, unless that is a refusal.
func answerOf(ctx context.Context, socket, method, call string, body any) (*http.Response, error) {
	unix := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return nil, unreachable(socket, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://bakeryd"+call, &text)
	if err != nil {
		return nil, unreachable(socket, err)
	}
	resp, err := unix.Do(req)
	if err != nil {
		var urlErr *url.Error // its text repeats a URL that means nothing to anybody
		if errors.As(err, &urlErr) {
			err = urlErr.Err
		}
		return nil, unreachable(socket, err)
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
	f := &failure{code: exitUnavailable, err: errors.New(said.Error.Message), hint: said.Error.Hint}
	switch said.Error.Code {
	case "device":
		f.code = exitNoDevice
		if f.hint == "" {
			f.hint = "dmesg and the log of bakeryd tell what is wrong with the device"
		}
	case "free", "missing":
		f.code = exitConflict
	case "invalid":
		f.code = exitUsage
	case "forbidden":
		f.code = exitForbidden
	}
	return f
}
