package locks

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestLook_BeginsAsLateAsLooksPermit: no client waits for one, and each further look costs a read.
func TestLook_BeginsAsLateAsLooksPermit(t *testing.T) {
	const handoff, grants, cycle = 8, 400, time.Millisecond
	for _, tc := range []struct {
		name   string
		before time.Duration // as long as a look took first
		takes  time.Duration
		every  int // grants to a look, at least
		atMost time.Duration
	}{
		{"half a grant", cycle / 2, cycle / 2, handoff - 1, (grants + 1) * cycle},
		{"two and a half grants", 5 * cycle / 2, 5 * cycle / 2, handoff - 2, (grants + handoff) * cycle},
		{"as long as all that the bound permits", handoff * cycle, handoff * cycle, handoff / 2, (2*grants - grants/handoff) * cycle},
		{"half a grant, long ones before", handoff * cycle, cycle / 2, handoff - 1, (grants + 1) * cycle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
				d := c.host(1, through(f), func(cfg *hostConfig) { cfg.Handoff = handoff })
				t.Cleanup(f.RemoveFaults)
				h := acquire(t, d, Request{Name: "x"})
				handOver := func(grants int) time.Duration {
					began := time.Now()
					for range grants {
						next := asking(t.Context(), d, Request{Name: "x"})
						synctest.Wait()
						time.Sleep(cycle)
						require.NoError(t, h.Release())
						h = got(t, next)
					}
					return time.Since(began)
				}
				looksTake := func(delay time.Duration) *disktest.Injection {
					return f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Delay: delay})
				}
				looksTake(tc.before)
				handOver(grants)
				looks := looksTake(tc.takes)
				handOver(5 * handoff)
				before := looks.Fired()
				took := handOver(grants)
				require.NoError(t, h.Release())
				require.LessOrEqual(t, looks.Fired()-before, grants/tc.every+2)
				require.LessOrEqual(t, took, tc.atMost)
			})
		})
	}
}
