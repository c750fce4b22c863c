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

// host is a host of the lockspace. Its lock and its floor are those of one lock.
type host struct {
	name string // such as "bakeryd"
	lock load.Lock
	// fresh acquires the lock by requests to the disk, also if the host could grant it without.
	fresh load.Lock
	// floor makes the host issue the raw requests of an uncontended lock, rounds times.
	floor func(ctx context.Context, rounds int) (*measuring.Floor, error)
}

// served returns the host of the bakeryd at a socket.
func served(socket, lock string) *host {
	bakeryd := client.New(socket)
	asUsual := client.Options{Command: holder}
	fresh := asUsual
	fresh.NoLinger = true
	return &host{
		name:  "bakeryd",
		lock:  load.OfBakeryd(bakeryd, lock, asUsual),
		fresh: load.OfBakeryd(bakeryd, lock, fresh),
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
	acquire := load.OfHost(d, locks.Request{Name: lock, PID: os.Getpid(), Command: holder})
	// With a context that cannot end, the host does its IO in this goroutine. Nothing holds this lock
	// for long.
	inline := func(ctx context.Context) (layout.Ticket, func() error, error) {
		if ctx.Err() != nil {
			return 0, nil, context.Cause(ctx)
		}
		return acquire(context.WithoutCancel(ctx))
	}
	return &host{
		name:  "this process",
		lock:  inline,
		fresh: inline,
		floor: func(ctx context.Context, rounds int) (*measuring.Floor, error) { return d.Floor(ctx, lock, rounds) },
	}
}
