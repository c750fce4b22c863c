package timing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestTimes(t *testing.T) {
	for _, lease := range []time.Duration{layout.MinLease, 5 * time.Second, 30 * time.Second, layout.MaxLease} {
		x := Times{Lease: lease}
		require.LessOrEqual(t, x.ClaimBudget(), x.Budget())
		require.Greater(t, x.LongWait(), x.Lease+x.Budget(), "a host that a claim overwrote is over before the claimant looks")
		require.Less(t, x.Renew()+x.Budget(), x.Lease-x.Grace(), "a renewal in time precedes the warning")
		require.Positive(t, x.Retry())
		require.Positive(t, x.Poll())
	}
}

// TestTimes_FenceAfter_LeavesTwoRenewals: a host misses two renewals, and an IO of the last one takes all of
// its budget, fails and is repeated, before the shortest fence-after is over. A renewal in time is granted
// under. IO of a lock that hangs holds a renewal back, and ends the lease before the host is fenced.
func TestTimes_FenceAfter_LeavesTwoRenewals(t *testing.T) {
	for _, lease := range []time.Duration{layout.MinLease, 5 * time.Second, 30 * time.Second, layout.MaxLease} {
		least := layout.MinFenceAfter(lease)
		for after := least; after <= lease; after += lease / 100 {
			x := Times{Lease: lease, FenceAfter: after}
			require.LessOrEqual(t, 2*x.Renew()+x.Budget()+x.Retry(), after, "%v of %v", after, lease)
			require.LessOrEqual(t, x.Alive(), x.Sure(), "%v of %v", after, lease)
			require.LessOrEqual(t, x.Renew(), Times{Lease: lease}.Renew())
			require.Greater(t, x.Stuck(), x.Renew()+x.Retry())
			require.Less(t, x.Stuck()+x.Retry(), x.Sure())
			require.Less(t, 10*x.LockRetry(), x.Stuck()/2, "the tries of store.SlotTries")
			require.LessOrEqual(t, x.Stuck(), Times{Lease: lease}.Stuck())
		}
		shorter := Times{Lease: lease, FenceAfter: least - least/100}
		require.Greater(t, 2*shorter.Renew()+shorter.Budget()+shorter.Retry(), shorter.FenceAfter)
		require.Equal(t, Times{Lease: lease}, Of(layout.Superblock{Lease: lease}))
	}
}
