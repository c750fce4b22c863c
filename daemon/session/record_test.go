package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
)

// TestSession_LateCalls_RecordNothing: the queue calls its clients without its mutex, so a call may come
// after a later one. A record that is gone does not come back by that, nor a hold that was released.
func TestSession_LateCalls_RecordNothing(t *testing.T) {
	dir, uuid := t.TempDir(), layout.UUID{1}
	file, err := handover.Create(dir, uuid, 1)
	require.NoError(t, err)
	file.PutTerm(handover.Term{UUID: uuid, Boot: hostid.BootID(), HostID: 1, Incarnation: 1})
	recorded := func() (states []handover.State) {
		_, _, sessions, err := handover.Resume(dir, uuid, 1, time.Hour)
		require.NoError(t, err)
		for _, s := range sessions {
			states = append(states, s.State)
		}
		return states
	}
	q := queue.New(&queue.Host{ID: 1, Observer: &observe.Recorder{Tally: new(tally.Tally)}, Stop: make(chan struct{}), Lost: make(chan struct{})},
		layout.Entry{Lock: 1, Name: "x", Creation: 1, Permits: 1})
	s := (&Table{cfg: Config{Handover: file}, telling: newTelling()}).make("0123456789abcdef0123456789abcdef")
	s.request(locks.Request{Name: "x", Permits: 1})
	w := new(queue.Item)
	w.Init(q, s.req, func(error) {})
	require.NoError(t, q.Admit(w))
	require.True(t, q.Grant(w, layout.MakeTicket(1, 1), false))
	require.Equal(t, []handover.State{handover.Granted}, recorded())

	require.True(t, q.Release(w, ""))
	s.KeepMode(layout.Shared)
	require.Equal(t, []handover.State{handover.Released}, recorded())

	q.ReleasesDone()
	s.KeepPlace(w)
	require.False(t, s.unkept)
	require.Empty(t, recorded())
}

// TestSession_SupersededBeforeItsPlaceIsRecorded_IsRecordedInOrder: a client whose lock was superseded
// waits again. A place that was due before is not recorded: the client is not in the new queue yet.
func TestSession_SupersededBeforeItsPlaceIsRecorded_IsRecordedInOrder(t *testing.T) {
	dir, uuid := t.TempDir(), layout.UUID{1}
	file, err := handover.Create(dir, uuid, 1)
	require.NoError(t, err)
	file.PutTerm(handover.Term{UUID: uuid, Boot: hostid.BootID(), HostID: 1, Incarnation: 1})
	host := &queue.Host{ID: 1, Observer: &observe.Recorder{Tally: new(tally.Tally)}, Stop: make(chan struct{}), Lost: make(chan struct{})}
	older := queue.New(host, layout.Entry{Lock: 1, Name: "x", Creation: 1, Permits: 1})
	newer := queue.New(host, layout.Entry{Lock: 2, Name: "x", Creation: 2, Permits: 1})
	s := (&Table{cfg: Config{Handover: file}, telling: newTelling()}).make("0123456789abcdef0123456789abcdef")
	s.request(locks.Request{Name: "x", Permits: 1})
	recordPlace := func() { // as tellNow does
		s.keep(func() handover.State {
			if s.unkept {
				return handover.Waiting
			}
			return ""
		})
	}
	arrive := func(q *queue.Queue, req locks.Request, beforehand func()) *queue.Item {
		w := new(queue.Item)
		w.Init(q, req, func(error) {})
		beforehand()
		require.NoError(t, q.Admit(w))
		return w
	}
	first := arrive(older, s.req, func() {})
	older.Tell(0)
	older.Refuse(api.ErrLost, queue.All)
	arrive(newer, locks.Request{Name: "x"}, func() {})
	arrive(newer, s.req, func() {
		recordPlace()
		s.KeepPlace(first) // by the driver of the old queue
		recordPlace()
	})
	newer.Tell(0)
	recordPlace()
	_, _, sessions, err := handover.Resume(dir, uuid, 1, time.Hour)
	require.NoError(t, err)
	require.Len(t, sessions, 1)
	require.Equal(t, []uint64{2, 2}, []uint64{sessions[0].Nth, sessions[0].Creation})
}
