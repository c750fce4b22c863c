//go:build integration

package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
)

var sections = flag.Int("sections", 250, "critical sections of each of the twelve clients of TestNoLostUpdate")

// counter is a file with a number, protected only by the lock.
type counter struct {
	t    *testing.T
	path string
}

func (s *space) counter() counter { return counter{s.t, filepath.Join(s.dir, "counter")} }

func (c counter) read() (n int) {
	text, err := os.ReadFile(c.path)
	if os.IsNotExist(err) {
		return 0
	}
	if err == nil {
		n, err = strconv.Atoi(string(text))
	}
	if err != nil {
		c.t.Error(err)
	}
	return n
}

// increment is the critical section of an exclusive holder.
func (c counter) increment() {
	if err := os.WriteFile(c.path, fmt.Append(nil, c.read()+1), 0o600); err != nil {
		c.t.Error(err)
	}
}

// section takes the lock, runs inside, and unlocks.
func (h *host) section(ctx context.Context, hist calls, name string, o client.Options, inside func()) error {
	o.PID, o.Command = os.Getpid(), "critical section"
	asked := hist.now()
	hold, err := h.client().Lock(ctx, name, o)
	if err != nil {
		return err
	}
	out := hist.took(hold, asked)
	inside()
	out()
	err = hold.Unlock()
	if errors.Is(err, client.ErrUnreachable) { // all processes were paused; the lock is released later
		return nil
	}
	return err
}

// contend makes four clients on each of three hosts increment the counter.
func contend(t *testing.T, s *space, each int, change func(*host)) {
	var hosts []*host
	for id := 1; id <= 3; id++ {
		h := s.machine(strconv.Itoa(id))
		change(h)
		h.start()
		hosts = append(hosts, h)
	}
	for _, h := range hosts {
		h.ready()
	}
	const clients = 4
	hist, c := newCalls(), s.counter()
	var all sync.WaitGroup
	began := time.Now()
	for i := range clients * len(hosts) {
		all.Go(func() {
			for range each {
				err := hosts[i%len(hosts)].section(t.Context(), hist, "counter", client.Options{}, c.increment)
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	total := clients * len(hosts) * each
	t.Logf("%d critical sections in %.1f s: %.0f a second", total, took.Seconds(), float64(total)/took.Seconds())
	require.Equal(t, total, c.read(), "updates were lost")
	hist.check(t)
	for _, h := range hosts {
		h.leave()
	}
}

// TestNoLostUpdate does not run in parallel, because it measures time.
func TestNoLostUpdate(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		t.Run(fmt.Sprint(sector), func(t *testing.T) {
			contend(t, newSpace(t, sector, leased(10*time.Second)), *sections, func(*host) {})
		})
	}
}

func TestNoLostUpdateUnderTheRaceDetector(t *testing.T) {
	t.Parallel()
	racing, err := racing()
	require.NoError(t, err)
	contend(t, newSpace(t, 512, leased(10*time.Second)), 20, func(h *host) { h.programs = racing })
}

// TestExclusionAcrossCrashes kills the bakeryds one after another under contention. Holds survive
// until bakeryd is back.
func TestExclusionAcrossCrashes(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	hosts, hist := s.hosts(3), newCalls()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for i := range 6 {
		all.Go(func() {
			for ctx.Err() == nil {
				err := hosts[i%3].section(ctx, hist, "x", client.Options{}, runtime.Gosched)
				if err == nil {
					mu.Lock()
					done++
					mu.Unlock()
				} else if ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond) // its bakeryd is down
				}
			}
		})
	}
	progress := func() {
		mu.Lock()
		before := done
		mu.Unlock()
		eventually(t, "the lock to change hosts", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return done >= before+20
		})
	}
	progress()
	for _, h := range hosts {
		h.crash()
		h.up()
		progress()
	}
	stop()
	all.Wait()
	hist.check(t)
	for _, h := range hosts {
		h.leave()
	}
}
