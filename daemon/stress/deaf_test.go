//go:build !race

package stress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMemory_BrokenLock_IsDetected makes the workers ignore others that are choosing: such a run
// must fail. It is a data race on purpose, which a race detector would report.
func TestMemory_BrokenLock_IsDetected(t *testing.T) {
	for _, maxTicket := range []uint64{0, 1000} {
		r, err := Run(t.Context(), Config{Workers: 4, Iterations: 10000, distort: deaf}, Memory(maxTicket))
		require.NoError(t, err)
		require.False(t, r.Passed(), "%+v", r)
		t.Logf("%+v", r)
	}
}
