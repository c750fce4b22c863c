package membership

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/fencetest"
)

// diskMissing is an agent that reaches a majority of the member disks.
type diskMissing struct{ fence.Agent }

func (a diskMissing) Fence(ctx context.Context, t fence.Target) error {
	if err := a.Agent.Fence(ctx, t); err != nil || t.LeaseOver {
		return err
	}
	return fence.ErrUnconfirmed
}

// TestFence_LeaseEndsInAWindow_IsTriedAgainThen: a majority of the member disks suffices from then on. The second
// window begins when the lease would be over without the watchdog's time.
func TestFence_LeaseEndsInAWindow_IsTriedAgainThen(t *testing.T) {
	onDisks(t, 3, func(t *testing.T, d *disks) {
		const watchdog = 10 * time.Second
		var fabric fencetest.Fabric
		d.sb.Policy, d.sb.FenceAfter = layout.PolicyFence, layout.MinFenceAfter(d.sb.Lease)
		as := func(id int) func(*Config) {
			return func(cfg *Config) {
				cfg.Lease.ID = id
				cfg.Lease.Self.WatchdogArmed, cfg.Lease.Self.WatchdogSeconds = true, uint16(watchdog/time.Second)
				cfg.NewAgent = func(fence.Config) (fence.Agent, error) { return diskMissing{fabric.Agent(id, 1)}, nil }
			}
		}
		a, b := d.boot("a", nil).start(as(1)).live(), d.boot("b", nil).start(as(2)).live()
		// The same two disks answer first: silence counts from the first read of a copy (PER-MEMBER).
		a.view(2).Inject(disktest.Fault{Op: blockdev.OpRead, Delay: time.Millisecond})
		b.renewal()
		silent := time.Now()
		b.kill()
		dead := func() bool {
			hosts, _ := a.Known()
			return hosts[1].Gone
		}
		for !dead() {
			require.NoError(t, a.Err())
			require.Less(t, time.Since(silent), timing.Times{Lease: d.sb.Lease}.Silence(watchdog)+3*d.times().Alive())
			time.Sleep(d.times().Retry())
		}
		var over []bool
		for _, call := range fabric.Calls() {
			over = append(over, call.LeaseOver)
		}
		require.Equal(t, []bool{false, false, true}, over)
	})
}
