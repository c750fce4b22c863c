package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// joiners returns hosts with ids so far apart that the headroom of none covers the next. If the
// first is slow, another host has left its id, so that it takes the long claim.
func joiners(n int, slow bool) *world {
	var cfgs []Config
	for i := range n {
		cfgs = append(cfgs, Config{ID: 1 + 3*i, Self: layout.HostRecord{MachineID: machineID(byte(i + 1))}})
	}
	w := newWorld(3*n, cfgs...)
	if slow {
		w.disk[0] = past(layout.StateLeft, 9)
		w.disk[0].ReadHorizon = 3 * n
	}
	w.stalled = 1 << itemOf(n-1, doStart) // the last one starts at any time
	return w
}

const coverHorizon = 120 * unit

// TestCover explores hosts that join with different ids: COVERED, RAISED. Some hosts sample the
// records of one read upwards and others downwards.
func TestCover(t *testing.T) {
	quickly := *quick || *deep
	for _, c := range []struct {
		name   string
		hosts  int
		slow   bool
		order  int // a bit for each host that reads downwards
		stalls int
		run    bool
	}{
		{"two", 2, false, 0, 1, quickly},
		{"two, first downwards", 2, false, 1, 1, *deep},
		{"two, second downwards", 2, false, 2, 1, *deep},
		{"two, first slow", 2, true, 0, 1, quickly},
		{"two, first slow and downwards", 2, true, 1, 1, *deep},
		{"two, first slow, second downwards", 2, true, 2, 1, *deep},
		{"three", 3, false, 0, 0, true},
		{"three, second downwards", 3, false, 2, 0, *deep},
		{"three, first slow", 3, true, 0, 0, quickly},
	} {
		if !c.run {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := joiners(c.hosts, c.slow)
			w.stalls, w.order = c.stalls+*moreStalls, c.order
			begin := time.Now()
			e := explore(w, coverHorizon)
			if e.found != "" {
				t.Fatalf("%s is broken:\n%s", e.found, e.at.story())
			}
			require.True(t, e.wentLive)
			t.Logf("%d states with %d stalls in %v", len(e.seen), w.stalls, time.Since(begin).Round(time.Millisecond))
		})
	}
}

// TestCoverMutations: a read horizon from a read before the own record was written covers too
// little, as does one from a partial read. A joiner may be about to go live by an earlier look.
func TestCoverMutations(t *testing.T) {
	if !mutating(t) {
		return
	}
	slow := map[mutation]bool{coverSoon: true}
	if *quick || *deep {
		slow[earlyCover], slow[narrowLook] = true, false
	}
	for mu, slow := range slow {
		w := joiners(2, slow)
		w.stalls = 1
		w.mutate(mu)
		e := explore(w, coverHorizon)
		require.Equal(t, "COVERED", e.found)
		t.Logf("found after %d states", len(e.seen))
	}
}

// TestCoverDeadJoiner: a joiner that stands still is waited for only until it is known to look
// again before it goes live.
func TestCoverDeadJoiner(t *testing.T) {
	r := newRig(t, Config{ID: 4})
	r.set(1, layout.StateJoining, 2, 7, 1).ReadHorizon = 1
	r.start()
	begin := r.now
	r.read(0)
	r.join()
	for !r.m.Ready() {
		r.until(r.now + times.Poll())
		require.Less(t, r.now, begin+2*times.Dead())
	}
	require.GreaterOrEqual(t, r.now, begin+times.Dead())
	require.Less(t, r.now, begin+times.Dead()+2*times.Poll())
}

// TestCoverSucceeds: without delays all hosts are covered in the end, also by hosts whose reads
// do not reach them. It fails if no host searches beyond its read horizon, or if horizons are not
// adopted.
func TestCoverSucceeds(t *testing.T) {
	mutating := mutating(t)
	for _, c := range []struct {
		mutation mutation
		hosts    int
		ends     bool
	}{{sound, 2, true}, {sound, 3, true}, {noSweep, 2, false}, {unheeded, 3, false}} {
		if c.mutation != sound && !mutating {
			continue
		}
		for _, late := range []bool{false, true} {
			w := joiners(c.hosts, false)
			w.mutate(c.mutation)
			w.calm, w.stalled = true, 0
			if late {
				w.calm = false
				w.calmly(c.hosts - 1)
				w.calm = true
			}
			e := explore(w, w.now+coverHorizon)
			require.Empty(t, e.found)
			if !late && !c.ends {
				continue // all look at once
			}
			require.Equal(t, c.ends, len(e.ends) > 0, "%v %v", c, late)
			for _, w := range e.ends {
				for i := range w.nodes {
					require.True(t, w.nodes[i].m.Ready())
				}
			}
		}
	}
}

// TestCoverSilent: a live host that stands still takes no more tickets when its lease is over,
// whatever the policy says about its holders. A host that joins alone could not evict it before
// it is ready.
func TestCoverSilent(t *testing.T) {
	for _, policy := range []layout.Policy{layout.PolicyFence, layout.PolicyManual} {
		for _, watchdog := range []uint16{0, 60} {
			r := newRig(t, Config{ID: 4, Policy: policy})
			rec := r.set(1, layout.StateLive, 2, 7, 1)
			rec.ReadHorizon, rec.WatchdogArmed, rec.WatchdogSeconds = 3, watchdog > 0, watchdog
			r.start()
			begin, within := r.now, times.Dead()+time.Duration(watchdog)*time.Second
			r.read(0)
			r.join()
			r.until(begin + within - 1)
			require.False(t, r.m.Ready())
			r.until(begin + within + 2*times.Poll())
			require.True(t, r.m.Ready())
			require.False(t, r.m.Host(1).Gone)
		}
	}
}
