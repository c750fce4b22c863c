package driver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/bakery"
)

func TestReadsAll(t *testing.T) {
	require.True(t, readsAll(1, 1, nextRead), "the next host saves a read by that")
	require.False(t, readsAll(1, rankPolls, nextRead+1), "or looks at the one slot")
	require.True(t, readsAll(2, 1, cheapRead), "a small read costs as much as one slot")
	require.False(t, readsAll(2, 1, cheapRead+1))
	require.True(t, readsAll(2, rankPolls, cheapRead+1), "but every rankPolls-th poll reads all")
}

// TestPollPause_EachCondition_IsBounded: after one read of 30 s, the tenth host in line once waited
// for 405 s before the next read, and every host behind it as well.
func TestPollPause_EachCondition_IsBounded(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		condition string
		quiet     time.Duration
		latency   time.Duration
		rank      int
		want      time.Duration
	}{
		{"next, at first: half of the latency", 0, 200 * us, 1, 100 * us},
		{"next, a fast device: the shortest spin", 0, 20 * us, 1, minPoll},
		{"next: about one percent of the hold", 64 * ms, 100 * us, 1, ms},
		{"next, a long hold: a twentieth of the device's time", time.Hour, 200 * us, 1, 4 * ms},
		{"next, a long hold, a fast device", time.Hour, 20 * us, 1, minQuiet},
		{"next, a long hold, a slow device", time.Hour, ms, 1, maxQuiet},
		{"next, a very slow device: half of its time", time.Hour, 20 * ms, 1, 20 * ms},
		{"second, at first", 0, 100 * us, 2, 150 * us},
		{"third, at first", 0, 100 * us, 3, 300 * us},
		{"second: four times in a hold", 8 * ms, 100 * us, 2, 2 * ms},
		{"third: the next hold may end at the same time", 8 * ms, 100 * us, 3, 4 * ms},
		{"second, a long hold", time.Hour, 100 * us, 2, 2 * maxQuiet},
		{"hundredth, a long hold", time.Hour, 100 * us, 100, maxRank},
		{"last, for years", 100000 * time.Hour, 100 * us, 1999, 299700 * us},
		{"hundredth, a very slow device", time.Hour, 20 * ms, 100, 2970 * ms},
		{"tenth, after a read that the device held up for 30 s", time.Hour, 30 * time.Second, 10, 30 * time.Second},
		{"last, a device in trouble", time.Hour, 100 * ms, 1999, maxSlow},
	} {
		require.Equal(t, c.want, PollPause(c.quiet, c.latency, c.rank), c.condition)
	}
}

// TestQuiet_AHostAheadGoes_BeginsAgain: the next in line once polled as slowly as its own wait was
// long. A lock of 16 hosts that held it for 10 ms was idle for another 1.5 ms each time.
func TestQuiet_AHostAheadGoes_BeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q quiet
		began := time.Now()
		at := func(began time.Time, host, rank int) time.Duration {
			return q.last(began, bakery.Action{Kind: bakery.Poll, Host: host, Rank: rank})
		}
		time.Sleep(time.Second)
		require.Equal(t, time.Second, at(began, 3, 2), "all of the wait before the first poll")
		time.Sleep(time.Second)
		require.Equal(t, 2*time.Second, at(began, 3, 2))
		require.Zero(t, at(began, 3, 1), "the holder has gone; the host directly ahead has the lock")
		time.Sleep(time.Second)
		require.Equal(t, time.Second, at(began, 3, 1))
		require.Zero(t, at(began, 4, 1), "another host")
		time.Sleep(time.Second)
		require.Zero(t, at(time.Now(), 4, 1), "another wait")
	})
}
