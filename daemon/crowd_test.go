package daemon

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// footprint is the memory and the goroutines of this process.
type footprint struct {
	goroutines int
	memory     int64 // bytes of heap and stacks in use
}

func takes() footprint {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), int64(m.HeapAlloc + m.StackInuse)}
}

// TestManyClientsOfOneLock: they are served in their order of arrival, with few tickets. The
// resources of each are small and freed. The test runs alone, because it counts goroutines.
func TestManyClientsOfOneLock(t *testing.T) {
	c := realClusterAlone(t, 8, 4)
	c.lasting(time.Minute)
	m := c.mortal(1)
	const clients = 500
	holder := m.ask(0, "")
	last := holder.until("granted").Token
	before := takes()
	began := time.Now()
	var queue []*testSession
	for n := range clients {
		s := m.ask(1+n, "")
		s.until("waiting")
		queue = append(queue, s)
	}
	during := takes()
	perClient := (during.memory - before.memory) / clients
	t.Logf("%d clients: %d goroutines and %d KiB more, queued in %v", clients, during.goroutines-before.goroutines,
		(during.memory-before.memory)>>10, time.Since(began).Round(time.Millisecond))
	require.LessOrEqual(t, during.goroutines-before.goroutines, 4*clients)
	require.Less(t, perClient, int64(128<<10), "of the client's part too")

	began = time.Now()
	tickets := map[uint64]bool{last.Number(): true}
	holder.leave()
	for i, s := range queue {
		require.NoError(t, s.conn.SetReadDeadline(time.Now().Add(generous)))
		token := s.until("granted").Token
		require.Greater(t, token, last, "client %d", i)
		last = token
		tickets[token.Number()] = true
		s.leave()
	}
	t.Logf("served in %v by %d tickets", time.Since(began).Round(time.Millisecond), len(tickets))
	require.Len(t, tickets, 1+clients/layout.MaxGrants, "none is released while a client waits")
	eventually(t, "they are forgotten", func() bool { return m.d.sessions.Count() == 0 && runtime.NumGoroutine() <= before.goroutines+8 })
	queue = nil
	eventually(t, "the memory is given back", func() bool {
		after := takes()
		return after.memory < before.memory+(during.memory-before.memory)/4
	})
}

// TestHandoffTimeAndAgain: a client of another host waits for a limited number of grants, however
// many clients a host has.
func TestHandoffTimeAndAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 4)
		a, b := c.host(1), c.host(2)
		const handoff = 8 // the default
		require.Equal(t, handoff, a.cfg.Handoff)
		var grants atomic.Int64 // to clients of the host with many
		var wg sync.WaitGroup
		done := make(chan struct{})
		for range 4 * handoff {
			wg.Go(func() {
				for open := true; open; {
					select {
					case <-done:
						open = false
					default:
					}
					h, err := a.Acquire(t.Context(), locks.Request{Name: "x"})
					if !assertNoError(t, err) {
						return
					}
					grants.Add(1)
					time.Sleep(time.Millisecond)
					assertNoError(t, h.Release())
				}
			})
		}
		most := int64(0)
		for range 10 {
			seen := grants.Load()
			eventually(t, "the many are at it", func() bool { return grants.Load() > seen+handoff })
			since := int64(-1)
			h := acquire(t, b, locks.Request{Name: "x", OnWaiting: func(int, int) {
				if since < 0 {
					since = grants.Load()
				}
			}})
			if since >= 0 {
				most = max(most, grants.Load()-since)
			}
			require.NoError(t, h.Release())
		}
		close(done)
		within(t, "letting the many in", wg.Wait)
		t.Logf("%d grants to the many; at most %d while the other one waited", grants.Load(), most)
		require.Positive(t, most)
		// one may have been made, and not counted, before
		require.LessOrEqual(t, most, int64(handoff+1))
	})
}

// TestNobodyStarves: clients that request the lock repeatedly, so that one of them always waits, do
// not keep out another one.
func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ hosts, readers, writers int }{
		{1, 6, 1}, {1, 1, 6}, {2, 4, 1}, {2, 1, 4},
	} {
		t.Run(fmt.Sprintf("%d hosts of %d readers and %d writers", test.hosts, test.readers, test.writers), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := newCluster(t, 8, 4)
				const rounds = 15
				var (
					wg, short sync.WaitGroup
					done      = make(chan struct{})
					inside    [2]atomic.Int64 // by mode
				)
				run := func(d *Host, mode layout.Mode) {
					short.Add(1)
					wg.Go(func() {
						for n := 1; ; n++ {
							h, err := d.Acquire(t.Context(), locks.Request{Name: "x", Mode: mode})
							if !assertNoError(t, err) {
								return
							}
							inside[mode].Add(1)
							time.Sleep(500 * time.Microsecond) // so that readers overlap
							if w, r := inside[layout.Exclusive].Load(), inside[layout.Shared].Load(); w > 1 || w == 1 && r > 0 {
								t.Errorf("%d writers together with %d readers", w, r)
							}
							inside[mode].Add(-1)
							if !assertNoError(t, h.Release()) {
								return
							}
							if n == rounds {
								short.Done()
							}
							select {
							case <-done:
								return
							default:
							}
						}
					})
				}
				for id := range test.hosts {
					d := c.host(1 + id)
					for range test.readers {
						run(d, layout.Shared)
					}
					for range test.writers {
						run(d, layout.Exclusive)
					}
				}
				within(t, "admitting every client often enough", short.Wait) // no client stops before
				close(done)
				within(t, "the end", wg.Wait)
			})
		})
	}
}
