// Package show formats a report of bakeryd and its events: the state of a host, the name of a lock,
// the tables of status, hosts and events. It requests a report, judges nothing and never touches a
// disk. It imports packages below daemon only for their types, and call, cli and render of
// bakeryctl.
package show

import (
	"context"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// Ask requests a report from the bakeryd at socket.
func Ask(ctx context.Context, socket string) (*report.Report, error) {
	report := new(report.Report)
	if err := call.Ask(ctx, socket, "GET", "/v1/status", nil, report); err != nil {
		return nil, err
	}
	return report, nil
}
