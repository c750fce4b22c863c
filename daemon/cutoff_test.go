package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/fencetest"
	"github.com/bakeryd/bakeryd/test/logtest"
)

// fencedEarly returns two hosts of a lockspace with a lease of 30 s and a fence-after of 6 s. Host 2 has a
// faulty device and holds a lock.
func (c *cluster) fencedEarly(configure ...func(*Config)) (a, b *Host, f *disktest.Faulty, held *driver.Hold) {
	c.t.Helper()
	c.SB.Lease, c.SB.Policy, c.SB.FenceAfter = 30*time.Second, layout.PolicyFence, 6*time.Second
	c.Format()
	agent := func(cfg *Config) { cfg.Fence = fence.Config{Agent: "exec", Command: "false"} }
	a = c.host(1, append(configure, agent)...)
	f = disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
	c.t.Cleanup(f.RemoveFaults)
	b = c.host(2, agent, through(f))
	held, err := b.Acquire(c.t.Context(), locks.Request{Name: "job"})
	require.NoError(c.t, err)
	return a, b, f, held
}

// TestFenceAfter_SilentHost_LosesItsLocksBeforeItsLeaseEnds: neither lease nor margin is waited for. The
// silent host keeps its hold until it learns of that, and grants nothing.
func TestFenceAfter_SilentHost_LosesItsLocksBeforeItsLeaseEnds(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b, f, held := c.fencedEarly()
		var fabric fencetest.Fabric
		a.mem.UseAgent(fabric.Agent(1, a.mem.Incarnation()))
		f.Inject(disktest.Fault{Err: unix.EIO})
		from := c.clock.Now()
		next, err := a.Acquire(t.Context(), locks.Request{Name: "job"})
		require.NoError(t, err)
		took := c.clock.Now() - from
		require.Greater(t, took, 4*time.Second-timing.Of(c.SB).Renew())
		require.Less(t, took, 7*time.Second)
		require.Len(t, fabric.Calls(), 1)
		require.Greater(t, next.Token(), held.Token())
		may, _ := b.mem.MayGrant()
		require.False(t, may)
		require.True(t, b.mem.Live(c.clock.Now()), "it does not know")
		f.RemoveFaults()
		within(t, "the loss of the lease", func() { <-b.Lost() })
		require.ErrorIs(t, b.Err(), lease.ErrVerdict)
		require.NoError(t, next.Release())
	})
}

// unconfirmed is an agent whose attempts fail immediately.
type unconfirmed struct{ fence.Agent }

func (unconfirmed) Fence(context.Context, fence.Target) error { return fence.ErrUnconfirmed }

// TestStatus_FencingFails_NamesTheNextAttempt: the host that tried knows before the window is over.
func TestStatus_FencingFails_NamesTheNextAttempt(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _, f, _ := c.fencedEarly()
		var fabric fencetest.Fabric
		a.mem.UseAgent(unconfirmed{fabric.Agent(1, a.mem.Incarnation())})
		f.Inject(disktest.Fault{Err: unix.EIO})
		var b *report.Host
		eventually(t, "an attempt that failed", func() bool {
			r, err := a.Status()
			require.NoError(t, err)
			b = r.HostByID(2)
			return b.FailedFences > 0
		})
		require.Equal(t, 1, b.FailedFences)
		require.Positive(t, *b.NextFenceMS)
		require.LessOrEqual(t, *b.NextFenceMS, timing.Of(c.SB).FenceWindow().Milliseconds())
		require.Regexp(t, `^no renewal for \d+ s, being fenced, 1 attempt has failed, the next one begins in \d+ s$`, b.Silence)
	})
}

// TestCutOff_RefusedWrite_EndsTheLease: a host learns by its next write, of its record or of a slot, that it
// was fenced, and its commands end immediately, because other hosts may have its locks.
func TestCutOff_RefusedWrite_EndsTheLease(t *testing.T) {
	for name, of := range map[string]struct {
		record func(layout.Geometry) int64
		within time.Duration
	}{
		"host record": {func(g layout.Geometry) int64 { return g.Host(2) }, 3 * time.Second}, // the next renewal
		"slot":        {func(g layout.Geometry) int64 { return g.Slot(1, 2) }, time.Second},
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			_, b, f, held := c.fencedEarly()
			at := of.record(c.Geo)
			f.Inject(disktest.Fault{Op: blockdev.OpWrite, Err: unix.EBADE, From: at, To: at + int64(c.Geo.Stride)})
			from := c.clock.Now()
			_ = held.Release()
			within(t, "the loss of the lease", func() { <-b.Lost() })
			require.ErrorIs(t, b.Err(), membership.ErrCutOff)
			require.Less(t, c.clock.Now()-from, of.within)
			require.LessOrEqual(t, b.mem.Moments().Deadline, c.clock.Now())
		})
	}
}

// TestUpgrade_HostMayBeFenced_WaitsForARenewal: another host may have the lock by then, and an upgrade is a
// grant.
func TestUpgrade_HostMayBeFenced_WaitsForARenewal(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		_, b, f, held := c.fencedEarly()
		require.NoError(t, held.SetMode(t.Context(), layout.Shared))
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO, From: c.Geo.Host(2), To: c.Geo.Host(3)})
		time.Sleep(timing.Of(c.SB).Sure())
		upgraded := make(chan error, 1)
		go func() { upgraded <- held.SetMode(t.Context(), layout.Exclusive) }()
		time.Sleep(timing.Of(c.SB).Renew())
		require.Empty(t, upgraded)
		require.True(t, b.mem.Live(c.clock.Now()))
		f.RemoveFaults()
		within(t, "the upgrade", func() { require.NoError(t, <-upgraded) })
		require.NoError(t, held.Release())
	})
}

// TestCutOff_WithoutFenceAfter_KeepsTheLease: one path may have no registration, and no other host has the
// locks before the lease is over.
func TestCutOff_WithoutFenceAfter_KeepsTheLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.SetPolicy(layout.PolicyFence)
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		t.Cleanup(f.RemoveFaults)
		h := c.host(1, through(f), func(cfg *Config) { cfg.Fence = fence.Config{Agent: "exec", Command: "false"} })
		held, err := h.Acquire(t.Context(), locks.Request{Name: "job"})
		require.NoError(t, err)
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, Err: unix.EBADE, Times: 2})
		time.Sleep(c.SB.Lease)
		require.NoError(t, h.Err())
		require.NoError(t, held.Release())
	})
}

// registered is a host with fence-after whose bakeryd can be killed, and when it last registered a key.
type registered struct {
	*mortal
	fenced bool
	at     time.Duration
}

func (c *cluster) registered() *registered {
	c.SB.Lease, c.SB.Policy, c.SB.FenceAfter = 30*time.Second, layout.PolicyFence, 6*time.Second
	c.Format()
	r := &registered{mortal: &mortal{c: c, id: 1, dir: c.t.TempDir(), state: c.t.TempDir()}}
	var fabric fencetest.Fabric
	r.configure = func(cfg *Config) {
		cfg.Machine.Fence = func(f fence.Config) (fence.Agent, error) {
			return registrar{fabric.Agent(1, 0), r, f.Resumed}, nil
		}
	}
	r.rise()
	return r
}

// registrar is an agent that finds the key of a previous process gone if that was fenced.
type registrar struct {
	fence.Agent
	of      *registered
	resumed bool
}

func (r registrar) Register(context.Context) error {
	if r.resumed && r.of.fenced {
		return fence.ErrFenced
	}
	r.of.at = r.of.c.clock.Now()
	return nil
}

// TestFenceAfter_FencedBeforeTheRestart_Joins: bakeryd does not give up, and the machine can write again only
// when no client of the previous process has a lock.
func TestFenceAfter_FencedBeforeTheRestart_Joins(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.registered()
		holder, token := m.ask(1, "").granted()
		incarnation, deadline := m.d.mem.Incarnation(), m.d.mem.Moments().Deadline
		m.kill()
		m.fenced = true
		m.rise()
		require.NotEqual(t, incarnation, m.d.mem.Incarnation())
		require.GreaterOrEqual(t, m.at, deadline)
		holder.again(m.mortal, token.String())
		require.Equal(t, http.StatusGone, holder.r.StatusCode)
	})
}

// TestFenceAfter_RestartWithoutState_RegistersWhenTheLeaseIsOver: a client that bakeryd does not know may have
// a lock until then, and writes with the key of its machine.
func TestFenceAfter_RestartWithoutState_RegistersWhenTheLeaseIsOver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.registered()
		m.ask(1, "").granted()
		deadline := m.d.mem.Moments().Deadline
		m.kill()
		require.NoError(t, os.Remove(handover.Path(m.dir, c.SB.UUID, 1)))
		m.rise()
		require.GreaterOrEqual(t, m.at, deadline)
	})
}

// TestFenceAfter_AttemptOfAFencedHost_EndsItsHolds: others may have its locks soon, as after a refused write.
func TestFenceAfter_AttemptOfAFencedHost_EndsItsHolds(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _, f, held := c.fencedEarly()
		var fabric fencetest.Fabric
		a.mem.UseAgent(fabric.Agent(1, a.mem.Incarnation()))
		require.NoError(t, fabric.Agent(3, 1).Fence(t.Context(), fence.Target{Host: 1, Incarnation: text.Hex(a.mem.Incarnation()), Name: "db1"}))
		f.Inject(disktest.Fault{Err: unix.EIO})
		within(t, "the loss of the lease", func() { <-a.Lost() })
		f.RemoveFaults()
		require.NoError(t, held.Release())
		require.ErrorIs(t, a.Err(), fence.ErrFenced)
		require.LessOrEqual(t, a.mem.Moments().Deadline, c.clock.Now())
	})
}

// TestFenceAfter_IOOfOneLockHangs_LeaseEndsBeforeTheFence: the renewal waits for the IO. Otherwise others
// fence the host, and the lock is not suspended when it joins again.
func TestFenceAfter_IOOfOneLockHangs_LeaseEndsBeforeTheFence(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b, f, held := c.fencedEarly()
		var fabric fencetest.Fabric
		a.mem.UseAgent(fabric.Agent(1, a.mem.Incarnation()))
		bad := f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 2), To: c.Geo.Slot(1, 3), Hang: true})
		from := c.clock.Now()
		go held.Release()
		within(t, "the loss of the lease", func() { <-b.Lost() })
		require.ErrorIs(t, b.Err(), api.ErrStuck)
		require.Less(t, c.clock.Now()-from, timing.Of(c.SB).Sure())
		require.Empty(t, fabric.Calls())
		left, _ := b.cfg.quarantine.Of(0, 1)
		require.Equal(t, c.SB.Lease, left)
		bad.Release()
	})
}

// TestFenceAfter_DeviceHangsForLessThanThat_KeepsTheLease: no lock is the cause, although IO of one is stuck
// before IO of the lease counts as hanging.
func TestFenceAfter_DeviceHangsForLessThanThat_KeepsTheLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		_, b, f, held := c.fencedEarly()
		for range 8 {
			time.Sleep(timing.Of(c.SB).Renew() * 5 / 4)
			bad := f.Inject(disktest.Fault{Hang: true})
			released := make(chan error, 1)
			go func() { released <- held.Release() }()
			time.Sleep(4 * time.Second)
			bad.Release()
			require.NoError(t, <-released)
			require.NoError(t, b.Err())
			time.Sleep(timing.Of(c.SB).Renew())
			held = acquire(t, b, locks.Request{Name: "job"})
		}
		require.NoError(t, held.Release())
	})
}

// TestFenceAfter_LeaseReturnsBeforeTheLock_KeepsTheLease: the device hung for both, and returns the IO of the
// lease a moment earlier.
func TestFenceAfter_LeaseReturnsBeforeTheLock_KeepsTheLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		_, b, f, held := c.fencedEarly()
		for i := range 16 {
			time.Sleep(timing.Of(c.SB).Renew() * 5 / 4)
			table := f.Inject(disktest.Fault{To: c.Geo.Entry(1), Hang: true})
			rest := f.Inject(disktest.Fault{From: c.Geo.Entry(1), Hang: true})
			released := make(chan error, 1)
			go func() { released <- held.Release() }()
			time.Sleep(timing.Of(c.SB).Stuck() + time.Duration(i)*70*time.Millisecond)
			table.Release()
			time.Sleep(timing.Of(c.SB).Retry() / 2)
			rest.Release()
			require.NoError(t, <-released)
			require.NoError(t, b.Err())
			time.Sleep(timing.Of(c.SB).Renew())
			held = acquire(t, b, locks.Request{Name: "job"})
		}
		require.NoError(t, held.Release())
	})
}

// slowAgent is an agent whose attempts have no answer, and end some time after they were told to.
type slowAgent struct {
	fence.Agent
	takes        time.Duration
	began, ended atomic.Int32
}

func (a *slowAgent) Fence(ctx context.Context, _ fence.Target) error {
	a.began.Add(1)
	<-ctx.Done()
	time.Sleep(a.takes)
	a.ended.Add(1)
	return ctx.Err()
}

// TestFence_HostRenewsMeanwhile_AttemptEnds: a slow agent would switch a host off that is back.
func TestFence_HostRenewsMeanwhile_AttemptEnds(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b, f, held := c.fencedEarly()
		agent := &slowAgent{Agent: new(fencetest.Fabric).Agent(1, 0)}
		a.mem.UseAgent(agent)
		f.Inject(disktest.Fault{Err: unix.EIO})
		eventually(t, "the fence", func() bool { return agent.began.Load() == 1 })
		f.RemoveFaults()
		from := c.clock.Now()
		eventually(t, "the end of the attempt", func() bool { return agent.ended.Load() == 1 })
		require.Less(t, c.clock.Now()-from, 2*timing.Of(c.SB).Renew())
		time.Sleep(c.SB.Lease)
		require.EqualValues(t, 1, agent.began.Load())
		require.NoError(t, b.Err())
		require.NoError(t, held.Release())
	})
}

// TestFence_HostIsSilentAgain_OneAttemptAtATime: two commands of the agent exec would meet.
func TestFence_HostIsSilentAgain_OneAttemptAtATime(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b, f, held := c.fencedEarly()
		agent := &slowAgent{Agent: new(fencetest.Fabric).Agent(1, 0), takes: 10 * time.Second}
		a.mem.UseAgent(agent)
		f.Inject(disktest.Fault{Err: unix.EIO})
		eventually(t, "the fence", func() bool { return agent.began.Load() == 1 })
		f.RemoveFaults()
		<-b.mem.Renewals()
		f.Inject(disktest.Fault{Err: unix.EIO})
		eventually(t, "the second attempt", func() bool { return agent.began.Load() == 2 })
		require.EqualValues(t, 1, agent.ended.Load())
		f.RemoveFaults()
		require.NoError(t, held.Release())
	})
}

// TestFence_SecondAttemptWaits_RenewalEndsBoth: own IO of the fencing host failed, so it began to count the silence
// again, and fenced again while its first attempt was under way.
func TestFence_SecondAttemptWaits_RenewalEndsBoth(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		own := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		t.Cleanup(own.RemoveFaults)
		a, b, f, held := c.fencedEarly(through(own))
		agent := &slowAgent{Agent: new(fencetest.Fabric).Agent(1, 0)}
		a.mem.UseAgent(agent)
		f.Inject(disktest.Fault{Err: unix.EIO})
		eventually(t, "the fence", func() bool { return agent.began.Load() == 1 })
		own.Inject(disktest.Fault{Err: unix.EIO})
		time.Sleep(timing.Of(c.SB).Renew() * 5 / 4)
		own.RemoveFaults()
		time.Sleep(c.SB.FenceAfter + 2*timing.Of(c.SB).Renew())
		require.Zero(t, agent.ended.Load())
		f.RemoveFaults()
		from := c.clock.Now()
		eventually(t, "the end of the first attempt", func() bool { return agent.ended.Load() > 0 })
		require.Less(t, c.clock.Now()-from, 2*timing.Of(c.SB).Renew())
		require.NoError(t, b.Err())
		require.NoError(t, held.Release())
	})
}

// TestService_StopsWithLocksHeldWithFenceAfter_LogsWhenItIsFenced: the lease is not how long a restart may take.
func TestService_StopsWithLocksHeldWithFenceAfter_LogsWhenItIsFenced(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.SB.Lease, c.SB.Policy, c.SB.FenceAfter = 30*time.Second, layout.PolicyFence, 6*time.Second
		c.Format()
		var log logtest.Log
		r := c.run(1, func(cfg *Config) {
			cfg.Fence, cfg.Logger = fence.Config{Agent: "exec", Command: "false"}, slog.New(slog.NewTextHandler(&log, nil))
		})
		r.ask(1, "").granted()
		time.Sleep(time.Second)
		r.ends(ErrHandedOver)
		require.Contains(t, log.String(), "restarted in time")
		require.Regexp(t, `lease_left=2\d(\.\d+)?s fenced_after=[45](\.\d+)?s`, log.String())
	})
}

// TestCutOff_WhileJoining_EndsTheAttempt: it was fenced before it was ready, and would try again with the key
// that is gone for ever.
func TestCutOff_WhileJoining_EndsTheAttempt(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.SetPolicy(layout.PolicyFence)
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		t.Cleanup(f.RemoveFaults)
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, Err: unix.EBADE})
		r := c.begin(1, through(f), func(cfg *Config) { cfg.Fence = fence.Config{Agent: "exec", Command: "false"} })
		within(t, "the end of the attempt", func() { require.ErrorIs(t, <-r.ended, membership.ErrCutOff) })
		r.ended = nil
	})
}
