package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
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
