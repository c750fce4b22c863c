package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/layout"
)

// command is the holder's command in listings.
const command = "bakeryctl bench"

// Served returns the host of the bakeryd at a socket.
func Served(socket, lock string) Host {
	return &served{client: client.New(socket), lock: lock}
}

type served struct {
	client *client.Client
	lock   string
}

func (s *served) String() string { return "bakeryd" }
func (s *served) Client() Client {
	return load.OfBakeryd(s.client, s.lock, client.Options{Command: command})
}

func (s *served) Floor(ctx context.Context, rounds int) (*measuring.Floor, error) {
	var f measuring.Floor
	err := s.client.Call(ctx, http.MethodPost, "/v1/floor", map[string]any{"name": s.lock, "rounds": rounds}, &f)
	if err == nil && len(f.Rounds) != rounds {
		err = fmt.Errorf("%w: %d rounds", client.ErrProtocol, len(f.Rounds))
	}
	if err != nil {
		return nil, fmt.Errorf("floor of lock %q: %w", s.lock, err)
	}
	return &f, nil
}

// Joined returns a host in this process.
func Joined(d *daemon.Host, lock string) Host {
	return &joined{daemon: d, req: locks.Request{Name: lock, PID: os.Getpid(), Command: command}}
}

type joined struct {
	daemon *daemon.Host
	req    locks.Request
}

func (j *joined) String() string { return "this process" }
func (j *joined) Client() Client { return local{load.OfHost(j.daemon, j.req)} }

func (j *joined) Floor(ctx context.Context, rounds int) (*measuring.Floor, error) {
	return j.daemon.Floor(ctx, j.req.Name, rounds)
}

// local is a client in this process. With a context that cannot end, the host does its IO in this
// goroutine. Nothing holds this lock for long.
type local struct{ *load.Client }

func (l local) Lock(ctx context.Context) (layout.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return l.Client.Lock(context.WithoutCancel(ctx))
}
