package daemon

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestSeveralDisks_SlowRequests_ShowInTheTailOfOneDiskOnly: one request in 100 of each disk takes 20 ms
// instead of 200 µs, independently of the other disks, in virtual time. The client pauses, so that each disk
// is done with its last write.
func TestSeveralDisks_SlowRequests_ShowInTheTailOfOneDiskOnly(t *testing.T) {
	const usual, slow, chance = 200 * time.Microsecond, 20 * time.Millisecond, 1.0 / 100
	inBubble(t, func(t *testing.T) {
		acquisitions := func(h *Host, disks ...*disktest.Faulty) (times []time.Duration) {
			require.NoError(t, acquire(t, h, locks.Request{Name: "x"}).Release())
			for _, d := range disks {
				d.Inject(disktest.Fault{Delay: usual})
				d.Inject(disktest.Fault{Delay: slow - usual, Chance: chance})
			}
			for range 4000 {
				begun := time.Now()
				hold := acquire(t, h, locks.Request{Name: "x"})
				times = append(times, time.Since(begun))
				require.NoError(t, hold.Release())
				time.Sleep(2 * slow)
			}
			slices.Sort(times)
			return times
		}
		h, disk := newCluster(t, 8, 4).faultyHost(1)
		one := acquisitions(h, disk)
		set, disks := lockspacetest.NewSeveral(t, 3, 8, 4, time.Now().Add(-time.Hour)).Open()
		three := acquisitions(newCluster(t, 8, 4).host(1, through(set)), disks...)
		for _, q := range []float64{0.5, 0.99, 0.999} {
			at := int(q * float64(len(one)))
			t.Logf("measured: quantile %v: one disk %v, three %v", q, one[at], three[at])
		}
		require.GreaterOrEqual(t, one[len(one)*99/100], slow)
		require.Less(t, three[len(three)*995/1000], slow)
	})
}
