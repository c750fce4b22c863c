package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// By these a command reaches the hold that it runs under.
const (
	envSession = "BAKERY_SESSION"
	envToken   = "BAKERY_TOKEN"
	envSocket  = "BAKERY_SOCKET"
)

// insideFor is how long a command waits for a bakeryd that is being restarted.
const insideFor = 30 * time.Second

const hintInside = "run it by: bakeryctl lock NAME -- COMMAND (with --device there is no bakeryd to ask)"

// surroundings is the environment that the command gets, but for what it is told of its lock: that of another lock
// around this one means nothing to it.
func surroundings() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, envSession+"=") {
			env = append(env, v)
		}
	}
	return env
}

// reach is what the command needs to reach its hold; nothing if that is not bakeryd's.
func (g *grant) reach() []string {
	if g.session == "" {
		return nil
	}
	socket := g.socket
	if abs, err := filepath.Abs(socket); err == nil {
		socket = abs // the command may go elsewhere
	}
	return []string{envSession + "=" + g.session, envSocket + "=" + socket}
}

// inside returns the access to the hold that this command runs under, and a context that bounds what is asked.
func (a *app) inside(ctx context.Context) (*client.Access, context.Context, context.CancelFunc, error) {
	session, text := os.Getenv(envSession), os.Getenv(envToken)
	if session == "" || text == "" {
		return nil, nil, nil, &failure{code: exitUsage, err: fmt.Errorf("not under a lock of bakeryd: %s and %s are not set", envSession, envToken),
			hint: hintInside}
	}
	var token layout.Ticket
	if err := token.UnmarshalText([]byte(text)); err != nil {
		return nil, nil, nil, &failure{code: exitUsage, err: fmt.Errorf("%s: %w", envToken, err), hint: hintInside}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, insideFor, fmt.Errorf("%w: no answer within %v", client.ErrUnreachable, insideFor))
	return client.New(a.socket).Access(session, token), ctx, cancel, nil
}

// ofHold gives the error of a change of a hold, or of a question about a lock, an exit code.
func (a *app) ofHold(err error) error {
	if err == nil {
		return nil
	}
	f := a.refused(err, lockOptions{})
	switch {
	case errors.Is(err, client.ErrUpgrade), errors.Is(err, client.ErrNoLock):
		f.code = exitConflict
	case errors.Is(err, client.ErrLost):
		f.code = exitLost
	}
	return f
}
