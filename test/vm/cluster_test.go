//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/test/vm/counter"
)

// cluster is a number of machines that share two disks of one target, each by a separate cable. One
// disk has the lockspace. The other has a counter, which every critical section reads, works on,
// and writes. A lockspace on several disks has a target for each, and the counter one more.
type cluster struct {
	t       *testing.T
	times   timing.Times
	target  *target   // of the counter
	members []*target // of each disk of the lockspace, and of spare ones
	locks   []string  // images of these disks
	data    string    // image with the counter
	hosts   []*host
}

const (
	locksSize = 16 // megabytes of the first disk of the lockspace; each further one has one more
	dataSize  = 8
)

// setup describes a cluster.
type setup struct {
	hosts  int             // 0: two
	disks  int             // of the lockspace; 0: one
	spares int             // blank disks of which bakeryd has the paths
	lease  time.Duration   // 0: usual
	fence  bool            // policy fence, by reservations on both disks
	after  time.Duration   // fence-after; 0: none
	aborts bool            // the target can abort writes
	cards  map[string]card // watchdogs, by host name
}

// gather boots the machines a, b, ... and makes them join.
func gather(t *testing.T, s setup) *cluster {
	t.Helper()
	if s.hosts == 0 {
		s.hosts = 2
	}
	if s.lease == 0 {
		s.lease = usual
	}
	c := &cluster{t: t, data: image(t, "data", dataSize)}
	s.disks = max(1, s.disks)
	for i := range s.disks + s.spares {
		c.locks = append(c.locks, image(t, locksName(i), locksSize+int64(i)))
	}
	c.serve(s)
	for i := range s.hosts {
		name := string(rune('a' + i))
		h := &host{id: i + 1, data: lay(t, c.target.portal)}
		h.flags = []string{"--host-id", fmt.Sprint(h.id), "--log-level", "debug"}
		units := []unit{{h.data.address(), 1}}
		for i, m := range c.members {
			path := lay(t, m.portal)
			h.locks = append(h.locks, path)
			h.flags = append(h.flags, "--device", "/dev/"+locksName(i))
			units = append(units, unit{path.address(), 1 + slices.Index(m.images, c.locks[i])})
		}
		devices := scsi(name, units...)
		if s.fence {
			h.flags = append(h.flags, "--fence", "pr", "--fence-device", "/dev/data")
		}
		if card, ok := s.cards[name]; ok {
			h.flags = append(h.flags, "--watchdog", "/dev/watchdog")
			h.card = card
			devices = append(devices, card.device...)
		}
		h.machine = start(t, name, devices...)
		c.hosts = append(c.hosts, h)
	}
	t.Cleanup(c.leave)
	for _, h := range c.hosts {
		h.booted(1)
	}
	c.times = timing.Times{Lease: s.lease, FenceAfter: s.after}
	flags := []string{"--lease", s.lease.String()}
	if s.fence {
		flags = append(flags, "--policy", "fence")
	}
	if s.after > 0 {
		flags = append(flags, "--fence-after", s.after.String())
	}
	format(t, c.locks[0], append(flags, c.locks[1:s.disks]...)...)
	// The last host joins first, and so makes the reservation. When the initiator that made a
	// reservation is preempted, tgt frees its record of the reservation but goes on using it, and
	// may then refuse to report it.
	for _, h := range slices.Backward(c.hosts) {
		h.ready()
		h.begin()
	}
	return c
}

// serve starts the targets.
func (c *cluster) serve(s setup) {
	c.t.Helper()
	switch {
	case s.aborts:
		c.target = serveByKernel(c.t, append([]string{c.data}, c.locks...)...)
	case s.disks > 1:
		c.target = serve(c.t, c.data)
		for _, image := range c.locks {
			c.members = append(c.members, serve(c.t, image))
		}
		return
	default:
		c.target = serve(c.t, c.data, c.locks[0])
	}
	c.members = slices.Repeat([]*target{c.target}, len(c.locks))
}

// locksName returns the name of a disk of the lockspace in a machine.
func locksName(i int) string {
	if i == 0 {
		return "locks"
	}
	return fmt.Sprint("locks", i+1)
}

// ready gives a booted machine its disks and its watchdog.
func (h *host) ready() {
	h.t.Helper()
	sizes := map[string]int64{"data": dataSize}
	for i := range h.locks {
		sizes[locksName(i)] = locksSize + int64(i)
	}
	h.disks(sizes)
	if h.card.module != "" {
		h.run("modprobe", h.card.module)
	}
}

// again makes a machine join after a reset.
func (h *host) again() {
	h.t.Helper()
	h.ready()
	h.begin()
}

// section starts a critical section under the lock "job".
func (h *host) section(until string, flags ...string) *command {
	h.t.Helper()
	argv := append([]string{"bakeryctl", "lock", "job", "--", "section"}, flags...)
	return h.start(append(argv, strconv.Itoa(h.id), until)...)
}

// enter starts a critical section that works until it reads a line, and waits until it has begun.
func (h *host) enter(flags ...string) (section *command, token uint64) {
	h.t.Helper()
	section = h.section("-", flags...)
	return section, section.number()
}

// work runs short critical sections under the lock, one after another, until the test ends or rest
// is called.
func (h *host) work(flags ...string) {
	h.t.Helper()
	h.start("sh", "-c", fmt.Sprintf(`rm -f /run/rest; touch /run/busy
		until test -e /run/rest; do bakeryctl lock job -- section --watch %s %d 100ms || sleep 0.2; done; rm /run/busy`,
		strings.Join(flags, " "), h.id))
}

// rest ends the work, and waits for its end.
func (h *host) rest() {
	h.t.Helper()
	h.sh("touch /run/rest; while test -e /run/busy; do sleep 0.1; done")
}

// judge checks the counter's disk from outside.
func (c *cluster) judge() counter.Report {
	c.t.Helper()
	f, err := os.Open(c.data)
	require.NoError(c.t, err)
	defer f.Close()
	r, err := counter.Check(f, len(c.hosts))
	require.NoError(c.t, err)
	return r
}

// counter reads the counter from outside; zero while it is being written.
func (c *cluster) counter() (n counter.Counter) {
	f, err := os.Open(c.data)
	if err != nil {
		return n
	}
	defer f.Close()
	n, _ = counter.Read(f)
	return n
}

// entered watches for a section with a greater token. The returned function waits for it, and
// returns when it was first seen.
func (c *cluster) entered(after uint64) (wait func() time.Time) {
	c.t.Helper()
	seen := make(chan time.Time, 1)
	go func() {
		for c.t.Context().Err() == nil {
			if c.counter().Token > after {
				seen <- time.Now()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() time.Time {
		c.t.Helper()
		select {
		case at := <-seen:
			return at
		case <-time.After(patience):
			c.t.Fatalf("no section entered after token %d within %v", after, patience)
			panic("not reached")
		}
	}
}

// sequence returns the number of renewals in a host's record on the disk.
func (c *cluster) sequence(h *host) (n uint64) {
	c.t.Helper()
	args := []string{"status", "--json"}
	for _, image := range c.locks {
		args = append(args, "--device", image)
	}
	out, err := exec.Command(bakeryctl(), args...).Output()
	require.NoError(c.t, err)
	var status struct {
		Hosts []struct {
			ID       int
			Sequence uint64 `json:",string"`
		}
	}
	require.NoError(c.t, json.Unmarshal(out, &status))
	for _, x := range status.Hosts {
		if x.ID == h.id {
			n = x.Sequence
		}
	}
	return n
}

// progress waits until each host has ended n more sections.
func (c *cluster) progress(n int, hosts ...*host) {
	c.t.Helper()
	before := c.judge()
	for _, h := range hosts {
		eventually(c.t, fmt.Sprintf("%d more sections of %s", n, h.name), func() bool {
			h.running()
			return c.judge().Of[h.id] >= before.Of[h.id]+n
		})
	}
}

// live returns the hosts that have power.
func (c *cluster) live() []*host {
	return slices.DeleteFunc(slices.Clone(c.hosts), func(h *host) bool {
		select {
		case <-h.gone:
			return true
		default:
			return false
		}
	})
}

// rest ends all work of some hosts.
func rest(hosts ...*host) {
	var all sync.WaitGroup
	for _, h := range hosts {
		all.Go(h.rest)
	}
	all.Wait()
}

// whole checks that no two sections overlapped, and that all ended except those with these tokens.
// On a very busy machine sections of hosts that lost a lease may be interrupted, too.
func (c *cluster) whole(interrupted ...uint64) {
	c.t.Helper()
	r := c.judge()
	require.Empty(c.t, r.Problems)
	var others []uint64
	for _, s := range r.Interrupted {
		if slices.Contains(interrupted, s.Token) {
			continue
		}
		require.Contains(c.t, c.hosts[s.Host-1].bakeryd.said(), "lease lost", "the section with token %d of host %d was cut short", s.Token, s.Host)
		others = append(others, s.Token)
	}
	require.Len(c.t, r.Interrupted, len(interrupted)+len(others), "sections that were to be cut short: %d", interrupted)
	c.measured("%d sections, none lost, %d cut short; the counter is at %d", r.Sections, len(r.Interrupted), r.Counter.Count)
	require.NoError(c.t, execute(c.t.TempDir(), append([]string{bakeryctl(), "check"}, c.locks...)...))
}

// measured logs a measurement.
func (c *cluster) measured(format string, args ...any) {
	c.t.Helper()
	c.t.Logf("measured: "+format, args...)
}

// leave prints, after a failure, where the hosts' journals are, and draws them.
func (c *cluster) leave() {
	if !c.t.Failed() {
		return
	}
	c.t.Logf("the counter's disk: %+v", c.judge())
	journals, _ := filepath.Glob(filepath.Join(place(c.t), "*", "state", "*.events"))
	c.t.Logf("journals of the hosts, for bakeryctl events --file: %s", strings.Join(journals, " "))
	if len(journals) > 0 && execute(base, bakeryctl(), "timeline", "--help") == nil {
		page := filepath.Join(place(c.t), "timeline.html")
		c.t.Logf("as a picture: %s (%v)", page, execute(base, slices.Concat([]string{bakeryctl(), "timeline", "-o", page}, journals)...))
	}
}
