package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// insideFor is how long a command waits for a bakeryd that is being restarted.
const insideFor = 30 * time.Second

const hintInside = "run it by: bakeryctl lock NAME -- COMMAND (with --device there is no bakeryd to ask)"

// inside returns the access to the hold that this command runs under, and a context that bounds what is asked.
func (a *app) inside(ctx context.Context) (*client.Access, context.Context, context.CancelFunc, error) {
	session, text := os.Getenv(supervise.EnvSession), os.Getenv(supervise.EnvToken)
	if session == "" || text == "" {
		return nil, nil, nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("not under a lock of bakeryd: %s and %s are not set", supervise.EnvSession, supervise.EnvToken),
			Hint: hintInside}
	}
	var token layout.Ticket
	if err := token.UnmarshalText([]byte(text)); err != nil {
		return nil, nil, nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", supervise.EnvToken, err), Hint: hintInside}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, insideFor, fmt.Errorf("%w: no answer within %v", client.ErrUnreachable, insideFor))
	return client.New(a.socket).Access(session, token), ctx, cancel, nil
}
