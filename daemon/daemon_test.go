package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// cluster is a number of hosts in one process, on a disk in memory.
type cluster struct {
	*lockspacetest.Lockspace
	t     *testing.T
	clock clock.Clock // of the hosts
}

// newCluster returns a cluster in a bubble.
func newCluster(t *testing.T, hosts, locks int) *cluster {
	return clusterOf(t, hosts, locks, time.Now())
}

// realCluster returns a cluster in real time, for tests with sockets and processes.
func realCluster(t *testing.T, hosts, locks int) *cluster {
	t.Parallel() // much of the test is waiting
	return realClusterAlone(t, hosts, locks)
}

// realLease outlasts the CPU use of other tests, and the stalls that test/stall announces.
var realLease = standstill.Outlives(6 * time.Second)

// realClusterAlone returns a cluster for a test that must not run in parallel with others.
func realClusterAlone(t *testing.T, hosts, locks int) *cluster {
	c := clusterOf(t, hosts, locks, time.Now())
	c.clock = clock.Boottime
	c.lasting(realLease)
	return c
}

// real reports whether the cluster is not in a bubble: it has sockets then.
func (c *cluster) real() bool { return c.clock == clock.Boottime }

// clusterOf returns a cluster in a bubble, formatted at the given time. If that is in the future,
// ticket numbers ignore the clock.
func clusterOf(t *testing.T, hosts, locks int, formatted time.Time) *cluster {
	return &cluster{Lockspace: lockspacetest.New(t, hosts, locks, formatted), t: t, clock: clocktest.Clock{}}
}

// host joins another host, which leaves at the end of the test.
func (c *cluster) host(id int, change ...func(*Config)) *Host {
	c.t.Helper()
	h, err := Join(c.t.Context(), c.config(id, change...))
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		if !h.Stopping() {
			require.NoError(c.t, h.Close(ctx))
		}
	})
	return h
}

func (c *cluster) config(id int, change ...func(*Config)) Config {
	dir := c.t.TempDir()
	cfg := Config{
		Devices: []string{"memory"}, HostID: id, Name: fmt.Sprintf("db%d", id), RuntimeDir: dir, StateDir: dir, Clock: c.clock,
		Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
		Open: func() (blockdev.Device, error) {
			return c.Disk.Open(), nil
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

func acquire(t *testing.T, d *Host, req locks.Request) *locks.Hold {
	t.Helper()
	h, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	return h
}

// acquireFails requests a lock and expects a refusal.
func acquireFails(t *testing.T, d *Host, req locks.Request, want error, why ...any) {
	t.Helper()
	_, err := d.Acquire(t.Context(), req)
	require.ErrorIs(t, err, want, why...)
}

func create(t *testing.T, d *Host, name string, permits int) {
	t.Helper()
	_, _, err := d.Create(t.Context(), name, permits)
	require.NoError(t, err)
}

// timeout returns a context that ends after a time.
func timeout(t *testing.T, after time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), after, api.ErrTimeout)
	t.Cleanup(cancel)
	return ctx
}

func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}
