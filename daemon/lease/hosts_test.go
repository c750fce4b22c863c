package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// look lets a live machine read the table after some time.
func (r *rig) look(after time.Duration) Host {
	r.t.Helper()
	r.now += after
	if r.out = r.m.Refresh(r.now); r.m.Over() {
		r.t.Fatal("the lease is over")
	}
	r.read(0)
	if _, ok := got[Write](r); ok {
		r.write(0)
	}
	return r.m.Host(3)
}

// TestHosts: these facts prove that an incarnation is over (VOID).
func TestHosts(t *testing.T) {
	second := time.Second
	t.Run("blank", func(t *testing.T) {
		r := live1(t)
		h := r.look(second)
		require.True(t, h.Readable)
		require.True(t, h.Void(7), "whoever went live since shows")
		require.Equal(t, r.now, h.Read)
	})
	t.Run("left", func(t *testing.T) {
		r := live1(t)
		r.set(3, layout.StateLeft, 2, 7, 1)
		h := r.look(second)
		require.True(t, h.Void(7))
		require.False(t, h.Void(6))
	})
	t.Run("verdict", func(t *testing.T) {
		r := live1(t)
		r.set(3, layout.StateLive, 2, 7, 1)
		require.False(t, r.look(second).Void(7))
		v := r.set(4, layout.StateLive, 4, 9, 1)
		v.Verdicts = []layout.Verdict{{Host: 3, Incarnation: 7}}
		require.True(t, r.look(second).Void(7))
		v.Verdicts = nil
		require.True(t, r.look(second).Void(7), "read once, it stays so")
	})
	t.Run("another incarnation proves nothing until it renewed twice", func(t *testing.T) {
		r := live1(t)
		r.set(3, layout.StateLive, 2, 6, 1)
		r.look(second)
		rec := r.set(3, layout.StateJoining, 2, 7, 2)
		require.False(t, r.look(second).Void(6))
		rec.State, rec.Sequence = layout.StateLive, 3
		require.False(t, r.look(second).Void(6))
		rec.Sequence++
		require.False(t, r.look(second).Void(6))
		rec.Sequence++
		require.True(t, r.look(second).Void(6))
		rec.State, rec.Sequence = layout.StateLeft, 6
		require.True(t, r.look(second).Void(6))
	})
	t.Run("renewals that are too far apart prove nothing", func(t *testing.T) {
		r := live1(t)
		rec := r.set(3, layout.StateLive, 2, 7, 1)
		for range 6 {
			require.False(t, r.look(times.Lease*2/3).Void(6))
			rec.Sequence++
		}
	})
	t.Run("a write that hung for a lease unsettles", func(t *testing.T) {
		r := live1(t)
		rec := r.set(3, layout.StateLive, 2, 7, 1)
		r.look(second)
		rec.Sequence++
		r.look(second)
		rec.Sequence++
		require.True(t, r.look(second).Settled)
		r.look(times.Lease / 2)
		r.look(times.Lease / 2)
		rec.Sequence++
		require.False(t, r.look(second).Settled)
	})
	t.Run("a write that hung for a lease unsettles, although its predecessor was seen late", func(t *testing.T) {
		r := live1(t)
		rec := r.set(3, layout.StateLive, 2, 7, 1)
		r.look(second)
		rec.Sequence++
		r.look(second)
		rec.Sequence++
		require.True(t, r.look(second).Settled)
		rec.Sequence++ // after that read; the next ones fail
		r.look(times.Lease * 4 / 5)
		rec.Sequence++ // L + margin later, over a next owner
		require.False(t, r.look(times.Lease*9/20).Settled)
	})
	t.Run("standing still for L + margin", func(t *testing.T) {
		r := live1(t)
		r.set(3, layout.StateLeft, 2, 7, 1)
		r.look(second)
		begin := r.now
		for r.now+5*second < begin+times.Dead() {
			require.False(t, r.look(5*second).Void(6))
		}
		require.True(t, r.look(5*second).Void(6))
	})
	t.Run("unreadable", func(t *testing.T) {
		r := live1(t)
		r.set(3, layout.StateLive, 2, 7, 1)
		before := r.look(second)
		r.table[2].Err = errSim
		after := r.look(second)
		require.False(t, after.Readable)
		require.Equal(t, before.Read, after.Read)
		require.EqualValues(t, 7, after.Incarnation)
	})
	t.Run("copies", func(t *testing.T) {
		r := live1(t)
		hosts := r.m.Hosts()
		require.Len(t, hosts, 3, "as far as reads go")
		hosts[0].Gone = true
		require.False(t, r.m.Host(1).Gone)
	})
}

// TestCoverHidden runs a trap for a joiner. Host a is live with id 1 and covers 1..3. Host b read
// the id free when a did and was slow; it overwrites a's record and then leaves. Host c joins
// with id 4, before a's next look.
func TestCoverHidden(t *testing.T) {
	mutating := mutating(t)
	for _, c := range []struct {
		mutation mutation
		left     bool
		broken   string
	}{
		{hidden, false, "COVERED"},
		{hidden, true, "COVERED"},
		{sound, false, ""},
		{sound, true, ""},
	} {
		if c.mutation != sound && !mutating {
			continue
		}
		w := newWorld(6, hostA, hostB, Config{ID: 4, Self: layout.HostRecord{MachineID: machineID(4)}})
		w.mutate(c.mutation)
		play := func(node int, moves ...move) {
			for _, mv := range moves {
				require.Contains(t, w.enabled(node), mv, "host %d: %s\n%s", node+1, moveNames[mv], w.story())
				w.do(node, mv)
				if broken := w.wrong(); broken != "" && broken != c.broken {
					t.Fatalf("%s is broken:\n%s", broken, w.story())
				}
			}
		}
		look := []move{doSample, doSample, doDeliver}
		play(0, doStart)
		play(1, doStart)
		play(0, look...)
		play(1, look...)
		play(0, doLand, doAck)
		w.now += 3 * unit
		play(0, append([]move{doTick}, append(look, doLand, doAck)...)...)
		require.True(t, w.nodes[0].m.Ready())
		w.now += 2 * unit
		play(1, doLand, doAck)
		play(1, look...) // over its budget: the long way
		play(1, doLand)
		if c.left {
			play(1, doAck)
			w.carry(&w.nodes[1], w.nodes[1].m.Leave(w.now))
			play(1, doSample, doDeliver, doLand, doAck)
			require.True(t, w.nodes[1].m.Over())
		} else {
			w.disk[0].ReadHorizon = 6 // as if it had found more since
		}
		play(2, doStart)
		play(2, append(look, doLand, doAck)...)
		w.now += 3 * unit
		play(2, append([]move{doTick}, append(look, doLand, doAck)...)...)
		require.True(t, w.nodes[0].m.Live(w.now) && w.nodes[2].m.Live(w.now))
		require.Equal(t, c.broken, w.wrong())
		require.Equal(t, c.broken != "", w.nodes[2].m.Ready())
	}
}
