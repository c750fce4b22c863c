package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
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

// clusterOf returns a cluster in a bubble, formatted at the given time. If that is in the future,
// ticket numbers ignore the clock.
func clusterOf(t *testing.T, hosts, locks int, formatted time.Time) *cluster {
	return &cluster{Lockspace: lockspacetest.New(t, hosts, locks, formatted), t: t, clock: clocktest.Clock{}}
}

// hostConfig is the configuration of a testHost.
type hostConfig struct {
	Device, Name, RuntimeDir, StateDir string
	HostID                             int
	Handoff                            int
	Linger                             time.Duration
	Repairs                            bool
	Clock                              clock.Clock
	Logger                             *slog.Logger
	open                               func(path string, readOnly bool) (blockdev.Device, layout.Superblock, int, error)
	handover                           *handover.File // nil if none
	resume                             *lease.Term    // of the previous process; nil if none
	// opens the disks of the directory and the slots, if the host table is on a disk of its own
	members func() (blockdev.Device, layout.Superblock, error)
	resumes func(h *testHost) // is called before Start
}

func (c *cluster) config(id int, change ...func(*hostConfig)) hostConfig {
	dir := c.t.TempDir()
	cfg := hostConfig{
		Device: "memory", HostID: id, Name: fmt.Sprintf("db%d", id), RuntimeDir: dir, StateDir: dir, Handoff: 8, Clock: c.clock,
		Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
		open: func(string, bool) (blockdev.Device, layout.Superblock, int, error) {
			dev := c.Disk.Open()
			sb, copyUsed, err := lockspace.FindLockspace(dev)
			return dev, sb, copyUsed, err
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// testHost is a host without clients and without a state for a restart.
type testHost struct {
	*Manager
	dev    blockdev.Device
	set    blockdev.Device // nil unless it has members
	ids    *hostid.Identity
	guards sync.WaitGroup
}

// host joins another host, which leaves at the end of the test.
func (c *cluster) host(id int, change ...func(*hostConfig)) *testHost {
	c.t.Helper()
	h, err := join(c.t.Context(), c.config(id, change...))
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

func join(ctx context.Context, cfg hostConfig) (*testHost, error) {
	dev, sb, _, err := cfg.open(cfg.Device, false)
	if err != nil {
		return nil, err
	}
	ids, err := hostid.New(hostid.Options{Name: cfg.Name, MachineID: hostid.MachineID(), BootID: hostid.BootID(), RuntimeDir: cfg.RuntimeDir,
		StateDir: cfg.StateDir}, sb.UUID)
	if err != nil {
		return nil, err
	}
	table := sb
	var set blockdev.Device
	locksOn := dev
	if cfg.members != nil {
		if set, sb, err = cfg.members(); err != nil {
			return nil, err
		}
		locksOn = set
	}
	disk := &store.Disk{Dev: locksOn, SB: sb, Clock: cfg.Clock, Stalls: new(stall.Watch), Quarantine: new(stall.Quarantine)}
	mem, err := membership.Join(membership.Config{Dev: dev, SB: table, Log: cfg.Logger, Identity: ids, Clock: cfg.Clock,
		Tally: new(tally.Tally), Stalls: disk.Stalls, Quarantine: disk.Quarantine, Lease: lease.Config{ID: cfg.HostID, Self: ids.HostRecord(), Resume: cfg.resume}})
	if err != nil {
		return nil, err
	}
	select {
	case <-mem.Ready():
	case <-mem.Over():
		mem.Wait()
		ids.ReleaseLockFiles()
		return nil, errors.Join(mem.Err(), dev.Close())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	disk.Quarantine.Start(cfg.Clock.Now())
	h := &testHost{dev: dev, set: set, ids: ids, Manager: New(&driver.Host{
		Host: queue.Host{Name: cfg.Name, Observer: logObserver{&observe.Recorder{Tally: new(tally.Tally)}, cfg.Logger}},
		Disk: disk, Member: mem, Notes: cfg.handover.SlotNotes(), Handoff: cfg.Handoff, Linger: cfg.Linger, Wall: time.Now,
	}, cfg.Repairs)}
	h.guards.Go(func() {
		select {
		case <-mem.Lost():
			h.HoldsLost()
		case <-mem.Over():
		}
	})
	if cfg.handover != nil {
		mem.KeepTerms(cfg.handover)
	}
	if cfg.resume != nil {
		if err := h.Resume(nil, nil); err != nil {
			return nil, err
		}
	}
	if cfg.resumes != nil {
		cfg.resumes(h)
	}
	h.Start()
	return h, nil
}

// Close leaves the lockspace.
func (h *testHost) Close(ctx context.Context) error {
	if err := h.Manager.Close(ctx); err != nil {
		return err
	}
	h.Wait()
	h.mem.Leave()
	h.mem.Wait()
	h.mem.Unregister()
	h.WaitClients()
	h.guards.Wait()
	h.ids.ReleaseLockFiles()
	if h.set != nil {
		return errors.Join(h.set.Close(), h.dev.Close())
	}
	return h.dev.Close()
}

func (h *testHost) Err() error            { return h.mem.Err() }
func (h *testHost) Lost() <-chan struct{} { return h.mem.Lost() }
func (h *testHost) HostID() int           { return h.mem.ID() }
func (h *testHost) times() timing.Times   { return h.disk.Times() }

func (h *testHost) leaseLeft() time.Duration {
	left, _ := h.mem.LeaseLeft()
	return left
}

// logObserver logs what has no place in a journal.
type logObserver struct {
	observe.Observer
	log *slog.Logger
}

func (o logObserver) Noted(message string, e layout.Entry, attrs ...any) {
	o.log.Info(message, append([]any{"lock", e.Name}, attrs...)...)
}

func (o logObserver) Trouble(message string, e layout.Entry, attrs ...any) {
	o.log.Warn(message, append([]any{"lock", e.Name}, attrs...)...)
}

func acquire(t *testing.T, d *testHost, req Request) *Hold {
	t.Helper()
	h, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	return h
}

// acquireFails requests a lock and expects a refusal.
func acquireFails(t *testing.T, d *testHost, req Request, want error, why ...any) {
	t.Helper()
	_, err := d.Acquire(t.Context(), req)
	require.ErrorIs(t, err, want, why...)
}

func create(t *testing.T, d *testHost, name string, permits int) {
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

// result is the outcome of a request.
type result struct {
	hold *Hold
	err  error
}
