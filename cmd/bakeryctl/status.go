package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon"
)

// statusPatience is how long bakeryd may take to read the lockspace.
const statusPatience = 30 * time.Second

func newStatus(a *app) *cobra.Command {
	var device string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the hosts of the lockspace, the locks, who holds them and who waits",
		Long: `Show the hosts of the lockspace, the locks, who holds them and who waits.

Without --device bakeryd is asked. With it the device is read, without joining
and without bakeryd; whether a host is alive does not show there.`,
		Example: `  bakeryctl status
  bakeryctl status --json | jq '.locks[] | select(.holders != [])'
  bakeryctl status --device /dev/mapper/locks`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var report *daemon.Report
			var err error
			if device != "" {
				report, err = statusOfDevice(device)
			} else {
				report, err = statusOfDaemon(cmd.Context(), a.socket)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.stdout, report)
			}
			return showReport(a.stdout, report, time.Now())
		},
	}
	cmd.Flags().StringVar(&device, "device", "", "read this `PATH` instead of asking bakeryd")
	cmd.Flags().BoolVar(&asJSON, "json", false, "show it as JSON")
	return cmd
}

func statusOfDevice(path string) (*daemon.Report, error) {
	dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
	if err != nil {
		return nil, &failure{code: exitNoDevice, err: err, hint: deviceHint(err)}
	}
	defer dev.Close()
	snapshot, err := daemon.Inspect(dev)
	if err != nil {
		return nil, &failure{code: exitNoDevice, err: err, hint: deviceHint(err)}
	}
	return snapshot.Report(), nil
}

func statusOfDaemon(ctx context.Context, socket string) (*daemon.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	unix := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	unreachable := func(err error) error {
		return &failure{code: exitUnavailable, err: fmt.Errorf("ask bakeryd at %s: %w", socket, err),
			hint: "is bakeryd running? systemctl status bakeryd, or use --device"}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bakeryd/v1/status", nil)
	if err != nil {
		return nil, unreachable(err)
	}
	resp, err := unix.Do(req)
	if err != nil {
		var urlErr *url.Error // its text repeats a URL that means nothing to anybody
		if errors.As(err, &urlErr) {
			err = urlErr.Err
		}
		return nil, unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp)
	}
	report := new(daemon.Report)
	if err := json.NewDecoder(resp.Body).Decode(report); err != nil {
		return nil, unreachable(fmt.Errorf("read its answer: %w", err))
	}
	return report, nil
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
	if said.Error.Code == "device" {
		f.code = exitNoDevice
	}
	return f
}
