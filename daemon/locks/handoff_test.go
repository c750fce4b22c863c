package locks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHandoff_OtherHostWaits_ServesTheWholeBound: clients that wait on a host have the lock one after
// the other as often as the bound permits, however soon a look finds another host.
func TestHandoff_OtherHostWaits_ServesTheWholeBound(t *testing.T) {
	t.Parallel()
	for _, lasts := range []time.Duration{300 * time.Microsecond, 2 * time.Millisecond} {
		runInCluster(t, lasts.String(), func(t *testing.T, c *cluster) {
			const handoff, clients, rounds = 8, 12, 20
			var mu sync.Mutex
			grants := map[uint64]int{} // by number
			var wg sync.WaitGroup
			for _, d := range []*testHost{c.host(1, c.slowly()), c.host(2, c.slowly())} {
				for range clients {
					wg.Go(func() {
						for range rounds {
							h, err := d.Acquire(context.Background(), Request{Name: "x"})
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							grants[h.Token().Number()]++
							mu.Unlock()
							time.Sleep(lasts)
							if err := h.Release(); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			wg.Wait()
			t.Logf("%d grants by %d tickets", 2*clients*rounds, len(grants))
			require.LessOrEqual(t, len(grants), 2*clients*rounds*10/(handoff*9))
		})
	}
}
