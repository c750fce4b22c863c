package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func (r *rig) leave() { r.out = r.m.Leave(r.now) }

func TestLeave(t *testing.T) {
	t.Run("live", func(t *testing.T) {
		r := live1(t)
		r.leave()
		require.False(t, r.m.MayWrite(r.now))
		rec := r.write(times.Budget())
		require.Equal(t, layout.StateLeft, rec.State)
		require.EqualValues(t, 101, rec.Incarnation)
		require.Equal(t, 3, rec.ReadHorizon)
		require.Equal(t, Left{Incarnation: 101}, want[Left](r))
		require.True(t, r.m.Over())
	})
	t.Run("slow: its successor must take the long claim", func(t *testing.T) {
		r := live1(t)
		r.leave()
		r.write(times.Budget() + 1)
		require.Equal(t, Left{}, want[Left](r))
	})
	t.Run("not ready: it proves no coverage", func(t *testing.T) {
		r := newRig(t, Config{ID: 4})
		r.set(1, layout.StateLive, 2, 7, 1).ReadHorizon = 2
		r.start()
		r.read(0)
		r.join()
		r.leave()
		require.Zero(t, r.write(0).ReadHorizon)
	})
	t.Run("waits for the write under way", func(t *testing.T) {
		r := live1(t)
		r.tick()
		r.read(0)
		r.land()
		r.leave()
		none[Write](r)
		r.ack(time.Second)
		require.Equal(t, layout.StateLeft, r.write(0).State)
		want[Left](r)
	})
	t.Run("does not wait for a read", func(t *testing.T) {
		r := live1(t)
		r.tick()
		r.leave()
		r.write(0)
		want[Left](r)
	})
	t.Run("not in the last d", func(t *testing.T) {
		r := live1(t)
		r.tickAt(r.m.Deadline() - times.Budget())
		r.leave()
		none[Write](r)
		r.tick()
		require.Equal(t, Left{}, want[Left](r))
		require.Equal(t, r.m.Deadline(), r.now)
	})
	t.Run("the write hangs", func(t *testing.T) {
		r := live1(t)
		r.leave()
		r.land()
		r.tick()
		require.Equal(t, r.m.Deadline(), r.now)
		require.Equal(t, Left{}, want[Left](r))
		require.True(t, r.m.Writing())
	})
	t.Run("the write fails", func(t *testing.T) {
		r := live1(t)
		r.leave()
		r.out = r.m.WriteFailed(r.now)
		r.tick()
		require.EqualValues(t, 4, r.write(0).Sequence)
		require.Equal(t, Left{}, want[Left](r), "the one that failed may land yet")
	})
	t.Run("overwritten", func(t *testing.T) {
		r := live1(t)
		r.tick()
		r.read(0)
		r.land()
		r.out = r.m.WriteFailed(r.now)
		r.tick()
		r.leave()
		r.out = r.m.WriteFailed(r.now)
		r.set(1, layout.StateJoining, 2, 7, 1)
		r.deliver(r.m.extent)
		require.Equal(t, Left{}, want[Left](r))
	})
}

func TestLeaveWhileJoining(t *testing.T) {
	t.Run("nothing written", func(t *testing.T) {
		r := newRig(t, Config{ID: 1})
		r.start()
		r.leave()
		require.Equal(t, Left{}, want[Left](r))
	})
	t.Run("not started", func(t *testing.T) {
		r := newRig(t, Config{ID: 1})
		r.leave()
		want[Left](r)
	})
	t.Run("the claim stands", func(t *testing.T) {
		r := newRig(t, Config{ID: 1})
		r.start()
		r.read(0)
		r.write(0)
		r.leave()
		r.read(0)
		rec := r.write(0)
		require.Equal(t, layout.StateLeft, rec.State)
		require.Zero(t, rec.ReadHorizon)
		require.Equal(t, Left{}, want[Left](r), "whom it overwrote may be live")
	})
	t.Run("while live is being written", func(t *testing.T) {
		r := newRig(t, Config{ID: 1})
		r.start()
		r.read(0)
		r.write(0)
		r.tick()
		r.read(0)
		r.land()
		r.leave()
		r.ack(0)
		none[Joined](r)
		r.read(0)
		rec := r.write(0)
		require.EqualValues(t, 3, rec.Sequence)
		require.Zero(t, rec.ReadHorizon)
		require.Equal(t, Left{}, want[Left](r))
	})
	t.Run("another has the id", func(t *testing.T) {
		r := newRig(t, Config{ID: 1})
		r.start()
		r.read(0)
		r.write(0)
		r.set(1, layout.StateJoining, 2, 7, 1)
		r.leave()
		r.read(0)
		none[Write](r)
		want[Left](r)
	})
	t.Run("the device hangs", func(t *testing.T) {
		r := newRig(t, Config{ID: 1})
		r.start()
		r.read(0)
		r.leave()
		begin := r.now
		r.tick()
		require.Equal(t, begin+times.Grace(), r.now)
		want[Left](r)
	})
}
