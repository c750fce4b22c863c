//go:build integration

package integration

import (
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

var readers = flag.Duration("readers", 5*time.Second, "how long TestReadersAndWriters lasts")

const (
	// turns bounds how many turns a client may have to wait for. Hosts are served first come, first
	// served, so each turn of its own host is preceded by one of the other. When a reader comes, at
	// most four turns of its host remain: the current holders; readers that came after the host
	// drew its ticket and need another one; the writer; and its own, with all readers then waiting.
	// The queue never holds more than one writer.
	turns = 2 * 4

	// look is the longest time between two looks of the first waiter (maxPoll in daemon/locks/driver/poll.go).
	look = 20 * time.Millisecond
)

// waitBound returns how long a client may wait if no hold exceeds hold and no request exceeds its
// IO budget: each turn ends with a write, which the next waiter sees by two reads.
func waitBound(leased, hold time.Duration) time.Duration {
	return turns * (hold + look + 3*timing.Times{Lease: leased}.Budget())
}

// rw records what clients see inside a lock.
type rw struct {
	mu       sync.Mutex // guards the fields below
	readers  int
	together int              // greatest number of readers at a time
	longest  [2]time.Duration // longest wait, by mode
	hold     time.Duration    // longest hold
	served   [2]int
}

func (r *rw) enter(mode layout.Mode, waited time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mode == layout.Shared {
		r.readers++
		r.together = max(r.together, r.readers)
	}
	r.longest[mode] = max(r.longest[mode], waited)
	r.served[mode]++
}

func (r *rw) leave(mode layout.Mode, hold time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mode == layout.Shared {
		r.readers--
	}
	r.hold = max(r.hold, hold)
}

// visit reads or writes once.
func (r *rw) visit(t *testing.T, h *host, mode layout.Mode) bool {
	asked := time.Now()
	hold, err := h.client().Lock(t.Context(), "catalogue", client.Options{Mode: client.Mode(mode)})
	if err != nil {
		t.Error(err)
		return false
	}
	r.enter(mode, time.Since(asked))
	in := time.Now()
	time.Sleep(rand.N(2 * time.Millisecond))
	r.leave(mode, time.Since(in))
	if err := hold.Unlock(); err != nil {
		t.Error(err)
	}
	return true
}

// TestReadersAndWriters lets eight readers and a writer on each of two hosts ask repeatedly:
// neither kind starves the other.
func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	hosts := s.hosts(2)
	var (
		r   rw
		all sync.WaitGroup
		end = time.Now().Add(*readers)
	)
	for _, h := range hosts {
		for i := range 9 {
			mode := layout.Shared
			if i == 0 {
				mode = layout.Exclusive
			}
			all.Go(func() {
				for time.Now().Before(end) && r.visit(t, h, mode) {
				}
			})
		}
	}
	all.Wait()
	bound := waitBound(briefLease, r.hold)
	t.Logf("measured: readers: %d in %v, up to %d at once, longest wait %v", r.served[layout.Shared], *readers, r.together,
		r.longest[layout.Shared].Round(time.Millisecond))
	t.Logf("measured: writers: %d in %v, longest wait %v; bound of both %v", r.served[layout.Exclusive], *readers,
		r.longest[layout.Exclusive].Round(time.Millisecond), bound.Round(time.Millisecond))
	require.Greater(t, r.together, 8, "readers of both hosts together")
	for mode, wait := range r.longest {
		require.Less(t, wait, bound, "the longest wait of %v", layout.Mode(mode))
	}
}
