package daemon

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestLoss_MemberHangs_WaitsForIt: a host that lost its lease joins again only when no write of it
// is in flight, which could land over one of another host.
func TestLoss_MemberHangs_WaitsForIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		set, disks := lockspacetest.NewSeveral(t, 3, 8, 4, time.Now()).Open()
		h, err := Join(t.Context(), newCluster(t, 8, 4).config(1, through(set)))
		require.NoError(t, err)
		hung := disks[2].Inject(disktest.Fault{Hang: true})
		<-hung.Hit()
		for _, disk := range disks[:2] {
			disk.Inject(disktest.Fault{Err: unix.EIO})
		}
		<-h.Lost()
		ended := make(chan error, 1)
		go func() { ended <- h.giveUp(t.Context()) }()
		time.Sleep(generous)
		require.Empty(t, ended, "it has not waited")
		hung.Release()
		require.NoError(t, <-ended)
	})
}

// TestClose_HoldersTookAllTheTime_StillWaitsForAHungMember: a host that an operator evicted must not end
// with an error, after which systemd would start it again.
func TestClose_HoldersTookAllTheTime_StillWaitsForAHungMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		set, disks := lockspacetest.NewSeveral(t, 3, 8, 4, time.Now()).Open()
		h, err := Join(t.Context(), newCluster(t, 8, 4).config(1, through(set)))
		require.NoError(t, err)
		hung := disks[2].Inject(disktest.Fault{Op: blockdev.OpWrite, Hang: true})
		<-hung.Hit()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.NoError(t, h.Close(ctx))
		hung.Release()
		require.NoError(t, set.AwaitRequests())
	})
}

// TestClose_MemberHangs_KeepsTheNextAway: the host ends without an error. No other process may have
// its id while a request is in flight.
func TestClose_MemberHangs_KeepsTheNextAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		several := lockspacetest.NewSeveral(t, 3, 8, 4, time.Now())
		set, disks := several.Open()
		cfg := newCluster(t, 8, 4).config(1, through(set))
		h, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		hung := disks[2].Inject(disktest.Fault{Hang: true})
		<-hung.Hit()
		require.NoError(t, h.Close(t.Context()))
		next, _ := several.Open()
		defer next.Close()
		through(next)(&cfg)
		_, err = Join(t.Context(), cfg)
		require.ErrorIs(t, err, hostid.ErrTaken)
		hung.Release()
		require.NoError(t, set.AwaitRequests())
		runtime.KeepAlive(h)
	})
}
