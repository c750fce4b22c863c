package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/memberdisks"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/fencetest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// keysOn is an Admitter that registers no key on one disk until it may.
type keysOn struct {
	without int
	may     atomic.Bool
}

var errNoKey = errors.New("no key")

func (k *keysOn) Admit(_ context.Context, position int, _ fence.Disk) error {
	if position == k.without && !k.may.Load() {
		return errNoKey
	}
	return nil
}

// fencedDisks returns the paths of a lockspace on three disks with policy fence.
func fencedDisks(t *testing.T) (paths []string) {
	for _, name := range []string{"a", "b", "c"} {
		paths = append(paths, filepath.Join(t.TempDir(), name))
	}
	_, err := format.Format(t.Context(), paths, format.Options{Hosts: 2, Locks: 4, Lease: lockspace.DefaultLease, Policy: layout.PolicyFence})
	require.NoError(t, err)
	return paths
}

// oneMissed is an agent that finds no key on the first member when it registers.
type oneMissed struct {
	fence.Agent
	*keysOn
	cfg fence.Config
}

func (a oneMissed) Register(context.Context) error {
	a.cfg.Members.Refuse(0, errNoKey)
	return nil
}

// TestJoin_FenceOnSeveralDisks_WritesOnlyWhereItsKeyIs: the agent gets the members, and not their set as one
// more device. It writes its record there when its key is.
func TestJoin_FenceOnSeveralDisks_WritesOnlyWhereItsKeyIs(t *testing.T) {
	c, paths, keys := realCluster(t, 2, 4), fencedDisks(t), &keysOn{without: 0}
	var got fence.Config
	h := c.host(1, func(cfg *Config) {
		cfg.Open, cfg.Devices, cfg.Disks.Retry = nil, paths, time.Millisecond
		cfg.Machine.Fence = func(f fence.Config) (fence.Agent, error) {
			got = f
			return oneMissed{new(fencetest.Fabric).Agent(1, 0), keys, f}, nil
		}
	})
	require.Empty(t, got.Devices)
	require.Len(t, got.Members.Disks(), 3)
	set := h.devices.Opened.(*lockspace.Disks)
	require.ErrorIs(t, set.Members()[0].Err, errNoKey)
	at := h.disk.SB.Geometry.Host(1)
	require.Zero(t, set.Kept(at, 0))
	require.NotZero(t, set.Kept(at, 1))
	keys.may.Store(true)
	eventually(t, "the record is there", func() bool { return set.Kept(at, 0) != mirror.Version{} })
}

// TestMemberDisks_NoKeyOnADisk_NotUsed: other hosts could not fence this one there. It does not matter that
// the host id is not known yet.
func TestMemberDisks_NoKeyOnADisk_NotUsed(t *testing.T) {
	paths := fencedDisks(t)
	d := memberdisks.New(slog.New(slog.NewTextHandler(io.Discard, nil)), nil, ownDirs(t))
	dev, err := d.Open(paths, lockspace.DiskOptions{Retry: time.Millisecond})
	require.NoError(t, err)
	defer dev.Close()
	require.Equal(t, paths[1], d.Disks()[1].Path)
	require.Equal(t, dev.(*lockspace.Disks).Members()[1].Name, paths[1])

	keys := &keysOn{without: 1}
	d.AdmitBy(keys)
	d.Refuse(1, errNoKey)
	eventually(t, "the member is down", func() bool { return dev.(*lockspace.Disks).Members()[1].State == mirror.Down })
	require.ErrorIs(t, dev.(*lockspace.Disks).Members()[1].Err, errNoKey)
	require.Empty(t, d.Disks()[1])
	keys.may.Store(true)
	eventually(t, "the member is up", func() bool { return dev.(*lockspace.Disks).Members()[1].State == mirror.Up })
	require.Equal(t, paths[1], d.Disks()[1].Path)
}

// TestCutOff_SeveralDisks_EndsTheLeaseOnAMajority: as many members as that refuse the writes of a host that
// was fenced; one of them may have lost its registrations.
func TestCutOff_SeveralDisks_EndsTheLeaseOnAMajority(t *testing.T) {
	for refusing := 1; refusing <= 2; refusing++ {
		t.Run(fmt.Sprint(refusing, " refuse"), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { isRefused(t, refusing) })
		})
	}
}

func isRefused(t *testing.T, refusing int) {
	several := lockspacetest.NewSeveral(t, 3, 8, 4, time.Now().Add(time.Hour))
	several.SB.Lease, several.SB.Policy, several.SB.FenceAfter = 30*time.Second, layout.PolicyFence, 6*time.Second
	for i, disk := range several.Disks {
		sb := several.SB
		sb.Position = i + 1
		lockspacetest.PutSuperblocks(t, disk.Open(), sb)
	}
	set, disks := several.Open()
	c := newCluster(t, 8, 4)
	h := c.host(1, through(set), func(cfg *Config) { cfg.Fence = fence.Config{Agent: "exec", Command: "false"} })
	for _, f := range disks[:refusing] {
		t.Cleanup(f.RemoveFaults)
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, Err: unix.EBADE})
	}
	if refusing == 1 {
		time.Sleep(several.SB.Lease)
		require.NoError(t, h.Err())
		return
	}
	from := c.clock.Now()
	within(t, "the loss of the lease", func() { <-h.Lost() })
	require.ErrorIs(t, h.Err(), membership.ErrCutOff)
	require.Less(t, c.clock.Now()-from, several.SB.FenceAfter)
}

// TestFenceAfter_FirstAttemptFails_TheNextOneKnowsThatTheLeaseIsOver: on several disks a majority suffices
// then, and not before.
func TestFenceAfter_FirstAttemptFails_TheNextOneKnowsThatTheLeaseIsOver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _, f, held := c.fencedEarly()
		var fabric fencetest.Fabric
		fabric.Fail(fence.ErrUnconfirmed)
		a.mem.UseAgent(fabric.Agent(1, a.mem.Incarnation()))
		f.Inject(disktest.Fault{Err: unix.EIO})
		eventually(t, "two attempts", func() bool { return len(fabric.Calls()) == 2 })
		require.False(t, fabric.Calls()[0].LeaseOver)
		require.True(t, fabric.Calls()[1].LeaseOver)
		f.RemoveFaults()
		_ = held.Release() // its lease is over
	})
}
