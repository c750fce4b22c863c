//go:build integration

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestOneIDTwice: of two hosts with one id the later is refused, and the first is not disturbed.
func TestOneIDTwice(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		a := s.host(1)
		holder, _ := a.holds("x")
		b := s.machine("1")
		for range 2 {
			b.start()
			b.exits(69)
			require.Contains(t, b.said(), `host id 1, host \"host-`)
			require.Contains(t, b.said(), a.dev[len("/dev/"):])
			require.Contains(t, b.said(), "in use")
			require.Equal(t, 69, b.lock("x", "--", "true").code, "the socket is removed")
		}
		// On the same machine the lock file prevents it, before any write.
		c := s.machine("1")
		c.dir = a.dir
		c.start()
		c.exits(69)
		holder.letGo()
		require.Zero(t, a.lock("x", "--", "true").code)
		a.leave()
		b.up()
		require.Zero(t, b.lock("x", "--", "true").code)
	})
}

// TestOneIDAtOnce: of hosts that start at the same time with one id, one remains. They have one
// machine id, so on a slow disk one may take over the id of another whose claim has not changed for
// long. That host is live for a moment, and learns of the loss.
func TestOneIDAtOnce(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	for range 2 {
		var all []*host
		for range 3 {
			h := s.machine("4")
			h.start()
			all = append(all, h)
		}
		running := func() (up []*host) {
			for _, h := range all {
				if h.running() {
					up = append(up, h)
				}
			}
			return up
		}
		eventually(t, "one is left, and serves", func() bool {
			up := running()
			return len(up) == 1 && up[0].serving()
		})
		up := running()
		for _, h := range all {
			if h == up[0] {
				continue
			}
			if strings.Contains(h.said(), "the own host record was overwritten") {
				h.exits(75)
			} else {
				h.exits(69)
			}
		}
		require.Zero(t, up[0].lock("x", "--", "true").code)
		up[0].leave()
	}
}

// TestAutoIDs: hosts without configured ids get different ones, even when they start at the same
// time.
func TestAutoIDs(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		var all []*host
		for range 4 {
			h := s.machine("auto")
			h.start()
			all = append(all, h)
		}
		ids := map[int]bool{}
		for _, h := range all {
			h.ready()
			ids[h.status().ThisHost.ID] = true
		}
		require.Len(t, ids, 4)
		require.Len(t, all[0].status().Hosts, 4)
		// A host that comes back gets the id that it left.
		id := all[2].status().ThisHost.ID
		all[2].leave()
		all[2].up()
		require.Equal(t, id, all[2].status().ThisHost.ID)
	})
}

// TestJoinIsQuick: from nothing to the first command under a lock, with the default lease and an
// unused id. It does not run in parallel, and uses an image in memory, because on a busy disk a
// host joins slowly. A pause of the machine may delay it.
func TestJoinIsQuick(t *testing.T) {
	for _, on := range []string{"memory", "disk"} {
		t.Run(on, func(t *testing.T) {
			const lease = 30 * time.Second
			s := map[string]func() *space{
				"memory": func() *space { return briefSpace(t, "--lease", lease.String()) },
				"disk":   func() *space { return newSpace(t, 512, "--lease", lease.String()) },
			}[on]()
			best := time.Hour
			for id := 1; id <= 3; id++ {
				h := s.machine(fmt.Sprint(id))
				name := "first-of-" + h.id
				began := sinceBoot()
				h.up()
				holder := h.work("x", name)
				took := s.journal("x").entered(name).enter - began
				measured(t, fmt.Sprintf("bakeryd started to first command inside, host %d, image on %s, lease %s", id, on, lease), took)
				best = min(best, took)
				holder.letGo()
			}
			if on == "memory" {
				require.Less(t, best, lease, "a long claim takes longer than a lease")
			}
			s.journal("x").exclusive()
		})
	}
}

func TestImpossibleIDs(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	for id, code := range map[string]int{"0": 64, "9": 64, "-1": 64, "x": 64} {
		h := s.machine(id)
		h.start()
		h.exits(code)
	}
	// A full lockspace.
	small := newImage(t, 512)
	small.format("--hosts", "1", "--locks", "1", leased(3*time.Second))
	small.host(1)
	h := small.machine("auto")
	h.start()
	h.exits(69)
	require.Contains(t, h.said(), "no host id is free")
}

func TestCleanLeave(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		a, b := s.host(1), s.host(2)
		require.Zero(t, a.lock("x", "--", "true").code)
		p := a.takeFor("x", `trap 'echo stopping; exit 0' TERM; echo $BAKERY_TOKEN; while :; do sleep 0.01; done`)
		p.entered()
		b.settles(a, "x")
		next := b.take("x")
		b.sees(b, "x")
		// The command gets SIGTERM before the lock is released.
		a.signal(syscall.SIGINT)
		require.Equal(t, "stopping", p.line())
		p.exits(75)
		require.Contains(t, p.said(), "shutting down")
		a.exits(0)
		next.entered()
		require.Equal(t, layout.StateLeft, s.hostRecord(1).Record.State)
		b.settles(b, "x")
		require.Len(t, b.report("x").Holders, 1)
		next.letGo()
		b.free("x")
		b.leave()
		for d := range s.dump() {
			if d.Kind == "host" {
				require.Equal(t, layout.StateLeft, d.Record.State)
			}
			if d.Kind == "slot" {
				require.Equal(t, layout.Idle, d.Record.Phase)
			}
		}
	})
}

// TestLeave_CommandIgnoresSIGTERM_IsKilled in time for its host to leave cleanly.
func TestLeave_CommandIgnoresSIGTERM_IsKilled(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	h := s.host(1)
	for i := range 3 {
		p := h.takeFor("x", `trap '' TERM; echo $BAKERY_TOKEN; while :; do sleep 0.01; done`)
		p.entered()
		h.signal(syscall.SIGINT)
		p.exits(75)
		eventually(t, "the command is gone", p.silent)
		h.exits(0)
		require.Equal(t, layout.StateLeft, s.hostRecord(1).Record.State, "time %d", i)
		h.up()
	}
}

// TestStopWhileJoining: a host that is stopped before it has joined ends immediately.
func TestStopWhileJoining(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512, "--lease", "30s")
	s.host(1).crash()
	a := s.machine("1")
	a.start() // without the previous state it waits until that host is certainly dead
	eventually(t, "it waits", func() bool { return !a.running() || strings.Contains(a.said(), "joining takes longer") })
	a.signal(syscall.SIGTERM)
	a.exits(0)
	require.NotContains(t, a.said(), "msg=serving")
}
