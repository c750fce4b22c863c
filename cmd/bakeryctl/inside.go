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

// insideTimeout is the timeout for bakeryd, which may be restarting.
const insideTimeout = 30 * time.Second

const hintInside = "run it with bakeryctl lock NAME -- COMMAND, without --device"

// inside returns the access to the hold that this command runs under, and a context with a timeout.
func (a *app) inside(ctx context.Context) (*client.Access, context.Context, context.CancelFunc, error) {
	session, text := os.Getenv(supervise.EnvSession), os.Getenv(supervise.EnvToken)
	if session == "" || text == "" {
		return nil, nil, nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("find the lock of this command: %s and %s are not set", supervise.EnvSession, supervise.EnvToken),
			Hint: hintInside}
	}
	var token layout.Ticket
	if err := token.UnmarshalText([]byte(text)); err != nil {
		return nil, nil, nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", supervise.EnvToken, err), Hint: hintInside}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, insideTimeout, fmt.Errorf("%w: no answer within %v", client.ErrUnreachable, insideTimeout))
	return client.New(a.socket).Access(session, token), ctx, cancel, nil
}
