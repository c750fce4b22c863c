//go:build integration

package integration

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

var sections = flag.Int("sections", 250, "critical sections of each of the twelve clients of TestNoLostUpdate")

// counter is a file with a number and the last token, read and written without
// any protection but that of a lock.
type counter struct {
	t    *testing.T
	path string
}

func (s *space) counter() counter { return counter{s.t, filepath.Join(s.dir, "counter")} }

func (c counter) read() (n uint64, last layout.Ticket) {
	var b [16]byte
	f, err := os.OpenFile(c.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		c.t.Error(err)
		return 0, 0
	}
	defer f.Close()
	_, _ = f.ReadAt(b[:], 0) // empty at first
	return binary.LittleEndian.Uint64(b[:]), layout.Ticket(binary.LittleEndian.Uint64(b[8:]))
}

func (c counter) write(n uint64, last layout.Ticket) {
	b := binary.LittleEndian.AppendUint64(nil, n)
	b = binary.LittleEndian.AppendUint64(b, uint64(last))
	f, err := os.OpenFile(c.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		c.t.Error(err)
	}
}

// increment is the critical section of an exclusive holder.
func (c counter) increment(token layout.Ticket) {
	n, last := c.read()
	if token <= last {
		c.t.Errorf("token %d after %d", token, last)
	}
	c.write(n+1, token)
}

// section takes the lock, is in it for a moment, and lets it go.
func (h *host) section(ctx context.Context, hist calls, name string, o client.Options, inside func(layout.Ticket)) error {
	o.PID, o.Command = os.Getpid(), "critical section"
	asked := hist.now()
	hold, err := h.client().Lock(ctx, name, o)
	if err != nil {
		return err
	}
	out := hist.took(hold, asked)
	inside(hold.Token())
	out()
	return hold.Unlock()
}

// contend has four clients of each of three hosts increment the counter.
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
	n, _ := c.read()
	require.EqualValues(t, total, n, "updates were lost")
	hist.check(t)
	for _, h := range hosts {
		h.leave()
	}
}

// TestNoLostUpdate runs alone, for the time that it takes is of interest.
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

// TestNoLostUpdateByCommands is the same in shell, through bakeryctl.
func TestNoLostUpdateByCommands(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector, leased(10*time.Second))
		path := filepath.Join(s.dir, "n")
		require.NoError(t, os.WriteFile(path, []byte("0\n"), 0o600))
		const each = 8
		var shells []*process
		for _, h := range s.hosts(3) {
			for range 2 {
				script := `n=$(cat ` + path + `); sleep 0.005; echo $((n + 1)) >` + path + `; echo $BAKERY_TOKEN >>` + path + `.tokens`
				loop := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do %s --socket %s lock count -- sh -c '%s' || exit; i=$((i + 1)); done`,
					each, h.programs.bakeryctl, h.socket, script)
				shells = append(shells, launch(t, h.dir, "sh", "-c", loop))
			}
		}
		for _, p := range shells {
			p.exits(0)
			require.Empty(t, p.said())
		}
		n, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d\n", each*len(shells)), string(n))
		tokens, err := os.ReadFile(path + ".tokens")
		require.NoError(t, err)
		requireGrowing(t, strings.Fields(string(tokens)))
	})
}

func requireGrowing(t *testing.T, words []string) {
	t.Helper()
	var last layout.Ticket
	for _, word := range words {
		var token layout.Ticket
		require.NoError(t, token.UnmarshalText([]byte(word)))
		require.Greater(t, token, last)
		last = token
	}
}

// TestReadersAndWritersMixed has readers look at two files that writers change together.
func TestReadersAndWritersMixed(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector, leased(10*time.Second))
		hosts, hist, c := s.hosts(3), newCalls(), s.counter()
		var all sync.WaitGroup
		for i := range 9 {
			all.Go(func() {
				for range 30 {
					o, inside := client.Options{}, c.increment
					if i/3 > 0 { // two readers and a writer on each host
						o.Mode = layout.Shared
						inside = func(layout.Ticket) {
							n, last := c.read()
							if again, lastAgain := c.read(); again != n || lastAgain != last {
								t.Errorf("a writer was inside with a reader")
							}
						}
					}
					if err := hosts[i%3].section(t.Context(), hist, "catalogue", o, inside); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		n, _ := c.read()
		require.EqualValues(t, 90, n)
		hist.check(t)
	})
}

// TestExclusionAcrossCrashes kills one bakeryd after the other while all are
// wanted. What its host holds stays held until it is back.
func TestExclusionAcrossCrashes(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	hosts, hist, c := s.hosts(3), newCalls(), s.counter()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for i := range 6 {
		all.Go(func() {
			for ctx.Err() == nil {
				err := hosts[i%3].section(ctx, hist, "x", client.Options{}, c.increment)
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
		eventually(t, "the lock goes round", func() bool {
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
