package membership

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// live returns a member that is live, in a lockspace with a lease of 10 minutes, and leaves at the end of the test.
func live(t *testing.T, space *lockspacetest.Lockspace, dev blockdev.Device, change func(*Config)) *Member {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	ids, err := hostid.New(hostid.Options{Name: "db1", RuntimeDir: dir, StateDir: dir}, space.SB.UUID)
	require.NoError(t, err)
	cfg := Config{
		Dev: dev, SB: space.SB, Log: log, Identity: ids, Clock: clocktest.Clock{}, Tally: new(tally.Tally),
		Stalls: new(stall.Watch), Quarantine: new(stall.Quarantine), Lease: lease.Config{ID: 1, Self: ids.HostRecord()},
	}
	if change != nil {
		change(&cfg)
	}
	mb, err := Join(cfg)
	require.NoError(t, err)
	<-mb.Ready()
	t.Cleanup(func() {
		mb.Leave()
		<-mb.Over()
		mb.Wait()
		ids.ReleaseLockFiles()
	})
	return mb
}

func space(t *testing.T) *lockspacetest.Lockspace {
	s := lockspacetest.New(t, 4, 4, time.Now())
	s.SB.Lease = 10 * time.Minute
	s.Format()
	return s
}

// TestMember_NameIsInUse_LogsAWarning: but not for another name.
func TestMember_NameIsInUse_LogsAWarning(t *testing.T) {
	for _, name := range []string{"db1", "db2"} {
		synctest.Test(t, func(t *testing.T) {
			s := space(t)
			live(t, s, s.Disk.Open(), nil)
			var log bytes.Buffer
			live(t, s, s.Disk.Open(), func(cfg *Config) {
				cfg.Identity.Name, cfg.WarnOfName = name, true
				cfg.Log, cfg.Lease.ID, cfg.Lease.Self = slog.New(slog.NewTextHandler(&log, nil)), 2, cfg.Identity.HostRecord()
			})
			synctest.Wait()
			require.Equal(t, name == "db1", strings.Contains(log.String(), `level=WARN msg="another live host has the name of this one" host=1 host_name=db1`), log.String())
		})
	}
}

func TestMember_Joins_MayWriteAndGrantUntilItsLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := space(t)
		f := disktest.NewFaulty(s.Disk.Open(), disktest.FaultyOptions{})
		mb := live(t, s, f, nil)
		require.Equal(t, 1, mb.ID())
		require.Equal(t, layout.StateLive, s.HostRecord(1).State)
		ok, _ := mb.MayWrite(mb.cfg.Clock.Now())
		require.True(t, ok)
		ok, _ = mb.MayGrant()
		require.True(t, ok)
		f.Inject(disktest.Fault{Err: unix.EIO})
		<-mb.Lost()
		require.ErrorIs(t, mb.Err(), lease.ErrExpired)
		ok, _ = mb.MayWrite(mb.cfg.Clock.Now())
		require.False(t, ok)
		f.RemoveFaults()
	})
}

func TestMember_LosesForAReason_SaysIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := space(t)
		mb := live(t, s, s.Disk.Open(), nil)
		mb.LoseFor(errors.New("the watchdog is gone"))
		<-mb.Lost()
		require.ErrorContains(t, mb.Err(), "the watchdog is gone")
	})
}

// TestMember_IOHangs_ReasonNamesIt: also in refusals.
func TestMember_IOHangs_ReasonNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := space(t)
		f := disktest.NewFaulty(s.Disk.Open(), disktest.FaultyOptions{})
		mb := live(t, s, f, nil)
		release := f.Hang(disktest.Fault{})
		<-mb.Lost()
		require.EqualError(t, mb.Err(), "the lease ran out: IO hangs: reading the host table, for 8m20s, on memory")
		require.ErrorIs(t, mb.Err(), lease.ErrExpired)
		release()
	})
}

// pausedClock is the clock of a process that is paused: all timers fire late.
type pausedClock struct {
	clocktest.Clock
	paused *atomic.Int64
}

func (c pausedClock) Now() time.Duration { return c.Clock.Now() + time.Duration(c.paused.Load()) }

// TestMember_ProcessDoesNotRun_ReasonSaysIt: the request that was in flight is not blamed.
func TestMember_ProcessDoesNotRun_ReasonSaysIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := space(t)
		var paused atomic.Int64
		f := disktest.NewFaulty(s.Disk.Open(), disktest.FaultyOptions{})
		mb := live(t, s, f, func(cfg *Config) { cfg.Clock = pausedClock{paused: &paused} })
		hung := f.Inject(disktest.Fault{Hang: true})
		<-hung.Hit()
		paused.Store(int64(19 * time.Minute))
		<-mb.Lost()
		require.Regexp(t, `^the lease ran out: this bakeryd did not run for 1[89]m[0-9.]+s$`, mb.Err().Error())
		require.ErrorIs(t, mb.Err(), lease.ErrExpired)
		hung.Release()
	})
}

// TestMember_AlarmAfterAPauseOfTheProcess_BlamesNoLock: IO that returned during the pause is still recorded as in flight.
func TestMember_AlarmAfterAPauseOfTheProcess_BlamesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := space(t)
		mb := live(t, s, s.Disk.Open(), nil)
		number := mb.cfg.Stalls.Begin(stall.IO{Lock: 1, Name: "x", Since: mb.cfg.Clock.Now() - mb.times().Stuck() - time.Second})
		mb.beginTurn()
		mb.loseForStall()
		require.NoError(t, mb.Err())
		mb.cfg.Stalls.End(number)
	})
}

func TestReadRows_PathIsDead_ReadsNotTheWholeTable(t *testing.T) {
	g := layout.Geometry{Stride: 4096, Hosts: 600, Locks: 1}
	dev := disktest.NewFaulty(disktest.NewMemory(g.Size(), 512, 4096).Open(), disktest.FaultyOptions{})
	dev.Inject(disktest.Fault{Op: blockdev.OpRead, To: lockspace.ScanChunk, Err: unix.EIO})
	rest := dev.Inject(disktest.Fault{Op: blockdev.OpRead, From: lockspace.ScanChunk, Err: unix.EIO})
	mb := &Member{cfg: Config{Dev: dev, SB: layout.Superblock{Geometry: g}}}
	_, err := mb.readRows(make([]lease.Record, g.Hosts), nil)
	require.ErrorIs(t, err, unix.EIO)
	require.Zero(t, rest.Fired())
}
