package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// meetBoth has two hosts run a coherence check, and returns both reports.
func meetBoth(t *testing.T, a, b *Host, rounds int, wait time.Duration) (ofA, ofB *measuring.MeetReport) {
	t.Helper()
	var wg sync.WaitGroup
	var errA, errB error
	wg.Go(func() {
		ofA, errA = a.Meet(t.Context(), measuring.MeetOptions{Host: b.HostID(), Rounds: rounds, Timeout: wait})
	})
	wg.Go(func() {
		ofB, errB = b.Meet(t.Context(), measuring.MeetOptions{Host: a.HostID(), Rounds: rounds, Timeout: wait})
	})
	wg.Wait()
	require.NoError(t, errA)
	require.NoError(t, errB)
	return ofA, ofB
}

// lockNumber returns the number of a lock as a host knows it.
func lockNumber(t *testing.T, d *Host, name string) int {
	t.Helper()
	lk, err := d.Find(t.Context(), locks.Request{Name: name})
	require.NoError(t, err)
	return lk.Entry.Lock
}

func TestMeetFresh(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b := c.host(2), c.host(5)
		for range 2 { // the remains of the first check do not disturb the next
			ofA, ofB := meetBoth(t, a, b, 50, generous)
			for _, r := range []*measuring.MeetReport{ofA, ofB} {
				require.Equal(t, measuring.MeetFresh, r.Outcome, "%+v", r)
				require.Equal(t, 50, r.Rounds)
				require.Zero(t, r.Stale)
				require.Equal(t, []string{"probe 2-5 a", "probe 2-5 b"}, r.Locks)
				require.Positive(t, r.RoundTrip.P99)
			}
			require.Equal(t, 25, ofA.RoundTrip.Count, "of the rounds without a dwell")
			require.Equal(t, 25, ofB.RoundTrip.Count)
			require.Equal(t, ofA.Nonce, ofB.PeerNonce)
			require.Equal(t, ofB.Nonce, ofA.PeerNonce)
		}
		requireNoLocks(t, c)
	})
}

// requireNoLocks checks that the directory of 4 locks is empty, but for the lock of the directory itself.
func requireNoLocks(t *testing.T, c *cluster) {
	t.Helper()
	for number := 1; number < c.Geo.Locks; number++ {
		require.True(t, c.Entry(number).Free(), "%+v", c.Entry(number))
	}
}

// Locks that existed before stay, and the check removes its words from them.
func TestMeet_LocksExist_StayEmpty(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b := c.host(2), c.host(5)
		var numbers []int
		for _, name := range meetLocks(2, 5) {
			numbers = append(numbers, lockNumber(t, a, name))
		}
		meetBoth(t, a, b, 8, generous)
		for i, name := range meetLocks(2, 5) {
			require.Equal(t, name, c.Entry(numbers[i]).Name)
			for _, host := range []int{2, 5} {
				s := c.Slot(numbers[i], host)
				require.Empty(t, s.Value)
				require.Zero(t, s.ValueToken)
				require.Equal(t, layout.Idle, s.Phase)
			}
		}
	})
}

// TestMeet_OtherHostStartsAgain_FindsItsNewLocks: the first check of host 1 has created the locks, and removes them when
// its caller leaves. Host 2 waits for host 1 with these locks, which it does not see at first.
func TestMeet_OtherHostStartsAgain_FindsItsNewLocks(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		b, blind := c.faultyHost(2)
		ctx, cancel := context.WithCancel(t.Context())
		var first, second sync.WaitGroup
		first.Go(func() {
			_, err := a.Meet(ctx, measuring.MeetOptions{Host: 2, Rounds: 5, Timeout: generous})
			require.ErrorIs(t, err, context.Canceled)
		})
		published := func(host int) {
			within(t, "a word of a host", func() {
				for c.Entry(2).Free() || len(c.Slot(2, host).Value) == 0 {
					time.Sleep(time.Millisecond)
				}
			})
		}
		published(1)
		for number := 1; number <= 2; number++ {
			at := c.Geo.Slot(number, 1)
			blind.Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Returns: disktest.Stale})
		}
		second.Go(func() {
			r, err := b.Meet(t.Context(), measuring.MeetOptions{Host: 1, Rounds: 5, Timeout: generous})
			require.NoError(t, err)
			require.Equal(t, measuring.MeetFresh, r.Outcome, "%+v", r)
		})
		published(2)
		cancel()
		first.Wait()
		var r *measuring.MeetReport
		err := api.ErrCoherenceCheck
		for errors.Is(err, api.ErrCoherenceCheck) { // until the first check has removed its locks
			time.Sleep(time.Millisecond)
			if c.Entry(1).Free() && c.Entry(2).Free() {
				blind.RemoveFaults()
			}
			r, err = a.Meet(t.Context(), measuring.MeetOptions{Host: 2, Rounds: 5, Timeout: generous})
		}
		require.NoError(t, err)
		require.Equal(t, measuring.MeetFresh, r.Outcome, "%+v", r)
		second.Wait()
		requireNoLocks(t, c)
	})
}

func TestMeetTakesTheLesserCount(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *Host) {
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := a.Meet(t.Context(), measuring.MeetOptions{Host: 2, Rounds: 1000, Timeout: generous})
			require.NoError(t, err)
			require.Equal(t, 7, r.Rounds)
		})
		r, err := b.Meet(t.Context(), measuring.MeetOptions{Host: 1, Rounds: 7, Timeout: generous})
		require.NoError(t, err)
		require.Equal(t, measuring.MeetFresh, r.Outcome)
		require.Equal(t, 7, r.Rounds)
		wg.Wait()
	})
}

// cached is a device whose reads of single sectors come from a cache, in which each expires after a
// time.
type cached struct {
	blockdev.Device
	on    atomic.Bool
	lasts time.Duration
	mu    sync.Mutex // guards kept
	kept  map[int64]keptSector
}

type keptSector struct {
	bytes string
	since time.Time
}

func (c *cached) Read(p []byte, off int64) error {
	if !c.on.Load() || len(p) != c.Info().LogicalBlock {
		return c.Device.Read(p, off)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kept[off]; ok && time.Since(k.since) < c.lasts {
		copy(p, k.bytes)
		return nil
	}
	if err := c.Device.Read(p, off); err != nil {
		return err
	}
	if c.kept == nil {
		c.kept = map[int64]keptSector{}
	}
	c.kept[off] = keptSector{string(p), time.Now()}
	return nil
}

// TestMeetFindsACache: a host that reads old sectors is detected, and that host reports it.
func TestMeetFindsACache(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		dev := &cached{Device: c.Disk.Open(), lasts: 20 * time.Millisecond}
		a, b := c.host(1), c.host(2, through(dev))
		dev.on.Store(true)
		ofA, ofB := meetBoth(t, a, b, 100, generous)
		require.Equal(t, measuring.MeetFresh, ofA.Outcome)
		require.Equal(t, measuring.MeetStale, ofB.Outcome)
		require.Positive(t, ofB.Stale)
		require.Contains(t, ofB.Detail, "slot x of host 1: it shows")
		require.Equal(t, 100, ofB.Rounds, "it continues to count")
	})
}

// staleOnce returns one slot of another host in an older state, once, after a number of reads of
// it.
func staleOnce(t *testing.T, c *cluster, which int, after int) (ofA, ofB *measuring.MeetReport) {
	t.Helper()
	a := c.host(1)
	b, faulty := c.faultyHost(2)
	number := lockNumber(t, a, meetLocks(1, 2)[which])
	at := c.Geo.Slot(number, 1)
	faulty.Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, After: after, Times: 1, Returns: disktest.Stale})
	return meetBoth(t, a, b, 200, generous)
}

func TestMeetFindsOneStaleRead(t *testing.T) {
	t.Parallel()
	for which, name := range []string{"x", "y"} {
		runInBubble(t, name, func(t *testing.T) {
			ofA, ofB := staleOnce(t, newCluster(t, 8, 4), which, 60)
			require.Equal(t, measuring.MeetFresh, ofA.Outcome)
			require.Equal(t, measuring.MeetStale, ofB.Outcome)
			require.Equal(t, 1, ofB.Stale)
			require.Contains(t, ofB.Detail, "slot "+name+" of host 1")
		})
	}
}

// TestMeetFindsBlindness: a host that never sees the other does not report a check.
func TestMeetFindsBlindness(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		b, faulty := c.faultyHost(2)
		for _, name := range meetLocks(1, 2) {
			at := c.Geo.Slot(lockNumber(t, a, name), 1)
			faulty.Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Returns: disktest.Stale})
		}
		ofA, ofB := meetBoth(t, a, b, 20, time.Second)
		require.Equal(t, measuring.MeetAbsent, ofA.Outcome)
		require.Equal(t, measuring.MeetAbsent, ofB.Outcome)
		require.Equal(t, ofB.Nonce, ofA.PeerNonce, "host 1 sees host 2")
		require.NotEqual(t, ofA.Nonce, ofB.PeerNonce, "host 2 does not see host 1")
	})
}

func TestMeetAlone(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		r, err := a.Meet(t.Context(), measuring.MeetOptions{Host: 2, Rounds: 1, Timeout: 50 * time.Millisecond})
		require.NoError(t, err)
		require.Equal(t, measuring.MeetAbsent, r.Outcome)
		require.Zero(t, r.PeerNonce)
		require.Empty(t, c.Slot(lockNumber(t, a, "probe 1-2 a"), 1).Value)
	})
}

// TestMeetGivenUp: a host whose caller leaves removes its words, and the other host notices.
func TestMeetGivenUp(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *Host) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := a.Meet(ctx, measuring.MeetOptions{Host: 2, Rounds: 1_000_000, Timeout: generous})
			require.ErrorIs(t, err, context.Canceled)
		})
		number := lockNumber(t, b, "probe 1-2 b")
		wg.Go(func() {
			within(t, "meeting", func() {
				for ; ; time.Sleep(time.Millisecond) {
					if word := c.Slot(number, 1).Value; len(word) == 28 && binary.LittleEndian.Uint32(word[4:]) > 5 { // the round
						cancel()
						return
					}
				}
			})
		})
		r, err := b.Meet(t.Context(), measuring.MeetOptions{Host: 1, Rounds: 1_000_000, Timeout: generous})
		require.NoError(t, err)
		require.Equal(t, measuring.MeetEnded, r.Outcome)
		require.Equal(t, "host 1 has given up", r.Detail)
		wg.Wait()
	})
}

// TestMeetKeepsValues: it does not touch a lock that clients use.
func TestMeetKeepsValues(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		lk, err := a.Find(t.Context(), locks.Request{Name: "probe 1-2 a"})
		require.NoError(t, err)
		token := layout.MakeTicket(1000, 1)
		require.NoError(t, lk.WithSlot(func(slot locks.SlotTx) error {
			return slot.Publish(func(own *layout.Slot) { own.Value, own.ValueToken = []byte("mine"), token })
		}))
		_, err = a.Meet(t.Context(), measuring.MeetOptions{Host: 2, Rounds: 1, Timeout: generous})
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, "has a value")
		s := c.Slot(lk.Entry.Lock, 1)
		require.Equal(t, "mine", string(s.Value))
		require.Equal(t, token, s.ValueToken)
	})
}

// meetLocks returns the names of the locks of two hosts' checks.
func meetLocks(a, b int) [2]string {
	pair := fmt.Sprintf("probe %d-%d ", a, b)
	return [2]string{pair + "a", pair + "b"}
}
