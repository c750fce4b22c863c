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
