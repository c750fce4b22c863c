package daemon

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// repairHost repairs the record of a host, from another machine.
func (c *cluster) repairHost(id int) (r Repaired, said []string) {
	f := check.Finding{What: lockspace.Record{Kind: lockspace.KindHost, Host: id}.Describe(), Kind: lockspace.KindHost, Host: id, Offset: c.Geo.Host(id)}
	r = Repaired{What: f.What, Offset: f.Offset}
	r.Done, r.Err = repairHost(c.t.Context(), f, c.SB, c.config(id), func(message string) { said = append(said, message) })
	return r, said
}

func TestRepairHost_OwnerUp_ChangesNothing(t *testing.T) {
	for _, policy := range []layout.Policy{layout.PolicyLease, layout.PolicyManual} {
		runInBubble(t, policy.String(), func(t *testing.T) {
			c := newCluster(t, 4, 4)
			c.SetPolicy(policy)
			d := c.host(1)
			h := acquire(t, d, locks.Request{Name: "x"})
			c.Spoil(c.Geo.Host(1))
			r, said := c.repairHost(1)
			require.NoError(t, r.Err)
			require.Empty(t, r.Done)
			require.Equal(t, policy == layout.PolicyManual, len(said) == 2, "%q", said)
			require.Equal(t, d.mem.Incarnation(), c.HostRecord(1).Incarnation)
			require.NoError(t, h.Err())
			require.NoError(t, h.Release())
		})
	}
}

// TestRepairHost_ProcessHasID_RefusesToWrite damages the record of a host whose process on this
// machine hangs.
func TestRepairHost_ProcessHasID_RefusesToWrite(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		cfg := c.config(1)
		ids, err := hostid.New(cfg.complete().identity(), c.SB.UUID)
		require.NoError(t, err)
		require.NoError(t, ids.TakeLockFile(1))
		defer ids.ReleaseLockFiles()
		f := check.Finding{What: "record of host 1", Kind: lockspace.KindHost, Host: 1}
		_, err = repairHost(t.Context(), f, c.SB, cfg, func(string) {})
		require.ErrorIs(t, err, check.ErrNotRepaired)
		require.ErrorIs(t, err, hostid.ErrTaken)
	})
}

// TestCloseSoon_ReleaseFails_EndsTheLease: as the end of the process would. Nothing of the host remains in the bubble.
func TestCloseSoon_ReleaseFails_EndsTheLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		d, err := Join(t.Context(), c.config(1, through(f)))
		require.NoError(t, err)
		h := acquire(t, d, locks.Request{Name: "x"})
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, Err: disktest.ErrCrashed})
		released := make(chan error, 1)
		go func() { released <- h.Release() }()
		err = d.CloseSoon(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `lock "x" is still held`)
		require.ErrorContains(t, d.mem.Err(), `lock "x" is still held`)
		require.ErrorIs(t, <-released, api.ErrLeaseLost)
		require.Equal(t, layout.StateLive, c.HostRecord(1).State, "others wait for the end of its lease")
	})
}
