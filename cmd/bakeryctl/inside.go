package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// insideTimeout is the timeout for bakeryd, which may be restarting.
const insideTimeout = 30 * time.Second

const hintInside = "run it with bakeryctl lock NAME -- COMMAND, without --device"

// inside calls change with the hold that this command runs under.
func (a *app) inside(ctx context.Context, change func(context.Context, *client.Access) error) error {
	session, text := os.Getenv(supervise.EnvSession), os.Getenv(supervise.EnvToken)
	if session == "" || text == "" {
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("find the lock of this command: %s and %s are not set", supervise.EnvSession, supervise.EnvToken),
			Hint: hintInside}
	}
	var token layout.Ticket
	if err := token.UnmarshalText([]byte(text)); err != nil {
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", supervise.EnvToken, err), Hint: hintInside}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, insideTimeout, fmt.Errorf("%w: no answer within %v", client.ErrUnreachable, insideTimeout))
	defer cancel()
	if err := change(ctx, client.New(a.socket).Access(session, token)); err != nil {
		return call.Failure(err)
	}
	return nil
}
