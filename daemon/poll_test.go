package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestRankIsOld(t *testing.T) {
	require.False(t, rankIsOld(1, rankPolls, cheapRead+1), "who is next looks at the one slot")
	require.True(t, rankIsOld(2, 1, cheapRead), "a small read costs as much as one slot")
	require.False(t, rankIsOld(2, 1, cheapRead+1))
	require.True(t, rankIsOld(2, rankPolls, cheapRead+1), "but now and then all are read")
}

// TestRankFallsWhileTheOneAheadWaits: who stands further back learns that those in front have gone though the slot
// directly ahead stays as it is. Without that it went on polling at the pace of its first place, and with many hosts
// the lock stood idle most of the time.
func TestRankFallsWhileTheOneAheadWaits(t *testing.T) {
	c := newCluster(t, 8, 4)
	first := acquire(t, c.host(1), Request{Name: "x"})
	waiting := func(id int) {
		within(t, "waiting", func() {
			for c.slot(1, id).Phase != layout.Waiting {
				time.Sleep(time.Millisecond)
			}
		})
	}
	second := start(t, c.host(2), Request{Name: "x"})
	waiting(2)
	third := start(t, c.host(3), Request{Name: "x"})
	waiting(3)
	d, places := c.host(4), make(chan int, 1)
	fourth := make(chan result, 1)
	go func() {
		h, err := d.Acquire(t.Context(), Request{Name: "x", OnWaiting: func(ahead, queued int) {
			select {
			case places <- ahead:
			default:
			}
		}})
		fourth <- result{h, err}
	}()
	place := func(want int) {
		within(t, "getting nearer", func() {
			for <-places != want {
			}
		})
	}
	place(3)
	require.NoError(t, first.Release())
	h := got(t, second)
	place(2)
	require.Equal(t, layout.Waiting, c.slot(1, 3).Phase, "the one directly ahead has not moved")
	require.NoError(t, h.Release())
	require.NoError(t, got(t, third).Release())
	require.NoError(t, got(t, fourth).Release())
}
