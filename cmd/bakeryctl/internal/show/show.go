// Package show knows how a report of bakeryd and its events read: the state of a host, the name
// of a lock, the tables of status, hosts and events. It asks for a report, judges nothing, and
// never touches a disk: it imports package daemon for the types of a report only, and call, cli and
// render of bakeryctl.
package show

import (
	"context"
	"net/http"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// Ask asks the bakeryd at socket for a report.
func Ask(ctx context.Context, socket string) (*report.Report, error) {
	report := new(report.Report)
	if err := call.Ask(ctx, socket, http.MethodGet, "/v1/status", nil, report); err != nil {
		return nil, err
	}
	return report, nil
}
