package bench

import (
	"context"
	"fmt"
	"os"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/layout"
)

// holder is the holder's command in listings.
const holder = "bakeryctl bench"

// host is a host of the lockspace. Its clients and its floor use one lock.
type host struct {
	name   string        // such as "bakeryd"
	client func() locker // returns a new client
	// floor makes the host issue the raw requests of an uncontended lock, rounds times.
	floor func(ctx context.Context, rounds int) (*measuring.Floor, error)
}

// locker acquires and releases the lock. One goroutine uses it.
type locker interface {
	// Lock blocks until it has acquired the lock, or until ctx ends, and then returns the cause.
	Lock(ctx context.Context) (layout.Ticket, error)
	Unlock() error
}

// served returns the host of the bakeryd at a socket.
func served(socket, lock string) *host {
	bakeryd := client.New(socket)
	return &host{
		name:   "bakeryd",
		client: func() locker { return load.OfBakeryd(bakeryd, lock, client.Options{Command: holder}) },
		floor: func(ctx context.Context, rounds int) (*measuring.Floor, error) {
			var f measuring.Floor
			err := bakeryd.Call(ctx, "POST", "/v1/floor", map[string]any{"name": lock, "rounds": rounds}, &f)
			if err == nil && len(f.Rounds) != rounds {
				err = fmt.Errorf("%w: %d rounds", client.ErrProtocol, len(f.Rounds))
			}
			if err != nil {
				return nil, fmt.Errorf("floor of lock %q: %w", lock, err)
			}
			return &f, nil
		},
	}
}

// joined returns a host in this process.
func joined(d *daemon.Host, lock string) *host {
	req := locks.Request{Name: lock, PID: os.Getpid(), Command: holder}
	return &host{
		name:   "this process",
		client: func() locker { return local{load.OfHost(d, req)} },
		floor: func(ctx context.Context, rounds int) (*measuring.Floor, error) {
			return d.Floor(ctx, lock, rounds)
		},
	}
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
