// Package measuring measures the slots of a joined host: the floor, which is the least time that a
// lock can take, the device as a slot sees it, and a coherence check with another host. It rewrites
// own slots as the protocol has them, so that no lock is disturbed.
package measuring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/membership"
)

// Meter measures for one host. It is safe for concurrent use.
type Meter struct {
	locks *locks.Manager
	disk  *store.Disk
	mem   *membership.Member
	name  string // of the host
	log   *slog.Logger

	meeting atomic.Bool // takes part in a coherence check
}

// New returns a Meter for a host that has joined.
func New(m *locks.Manager, disk *store.Disk, mem *membership.Member, name string, log *slog.Logger) *Meter {
	return &Meter{locks: m, disk: disk, mem: mem, name: name, log: log}
}

// ownLock returns a lock for a measurement, and whether it was created for that: such a lock has no client's value, and
// is removed afterwards.
func (m *Meter) ownLock(ctx context.Context, name string) (lk *locks.Lock, created bool, err error) {
	_, created, err = m.locks.Create(ctx, name, 1)
	if err == nil || errors.Is(err, api.ErrPermits) {
		lk, err = m.locks.Find(ctx, locks.Request{Name: name})
	}
	if err != nil {
		return nil, false, fmt.Errorf("lock %q: %w", name, err)
	}
	return lk, created, nil
}

// removeWithin is the timeout for removing the lock of a measurement.
const removeWithin = 10 * time.Second

// remove removes the lock of a measurement, even if its caller has gone, unless a client has it or has
// set its value.
func (m *Meter) remove(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	if err := m.locks.RemoveIfNoValue(ctx, name, true); err != nil && !errors.Is(err, api.ErrNoLock) {
		m.log.Error("the lock of a measurement remains: remove it with bakeryctl rm", "lock", name, "err", err)
	}
}

// detached calls f for a client, which does not wait for a device that hangs. The context of f
// ends with the client's and with the lease. If the client stops waiting, f ends with its IO.
// Closing the device waits for that.
func detached[T any](ctx context.Context, m *Meter, f func(context.Context) (*T, error)) (*T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var v *T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = f(ctx)
	}()
	select {
	case <-done:
		return v, err
	case <-m.mem.Lost():
		cancel(fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost))
	case <-ctx.Done():
	}
	return nil, context.Cause(ctx)
}
