package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
)

func newQueue() (q *Queue, stop chan struct{}) {
	stop = make(chan struct{})
	return New(&Host{ID: 1, Observer: &observe.Recorder{Tally: new(tally.Tally)}, Stop: stop, Lost: make(chan struct{})}, layout.Entry{Lock: 1, Name: "x"}), stop
}

// arrive returns a client that has been admitted.
func arrive(t *testing.T, q *Queue, req Request) *Item {
	t.Helper()
	w, _ := arriveAndListen(t, q, req)
	return w
}

// arriveAndListen also returns the outcome.
func arriveAndListen(t *testing.T, q *Queue, req Request) (*Item, <-chan error) {
	t.Helper()
	w, outcome := new(Item), make(chan error, 1)
	w.Init(q, req, func(err error) { outcome <- err })
	require.NoError(t, q.Admit(w))
	return w, outcome
}

const token = layout.Ticket(1 << 20)

// TestQueue_Clients_AreServedInTheOrderOfArrival: only the first is granted, once.
func TestQueue_Clients_AreServedInTheOrderOfArrival(t *testing.T) {
	q, _ := newQueue()
	a, outcome := arriveAndListen(t, q, Request{})
	b := arrive(t, q, Request{})
	require.False(t, q.Grant(b, token, false), "a is in front")
	require.True(t, q.Grant(a, token, false))
	require.NoError(t, <-outcome)
	require.Equal(t, token, a.Token())
	require.False(t, q.Grant(a, token, false))
	require.Same(t, b, q.Front())
	require.Equal(t, []*Item{a}, q.Inside())
	require.Less(t, a.Nth(), b.Nth())
}

// TestQueue_Try_IsBusyBehindOthers: behind a client that waits, and behind a hold in a conflicting
// mode; not behind clients that have gone away.
func TestQueue_Try_IsBusyBehindOthers(t *testing.T) {
	q, _ := newQueue()
	gone := false
	a := arrive(t, q, Request{Mode: layout.Shared, Gone: func() bool { return gone }})
	try := func(mode layout.Mode) error {
		w := new(Item)
		w.Init(q, Request{Mode: mode, Try: true}, nil)
		err := q.Admit(w)
		if err == nil {
			require.True(t, q.Withdraw(w))
		}
		return err
	}
	require.ErrorIs(t, try(layout.Shared), api.ErrBusy, "a waits")
	require.True(t, q.Grant(a, token, false))
	require.NoError(t, try(layout.Shared))
	require.ErrorIs(t, try(layout.Exclusive), api.ErrBusy, "a holds")
	gone = true
	require.NoError(t, try(layout.Exclusive))
}

// TestQueue_Withdrawn_IsNotGranted: and a client that was granted cannot be withdrawn.
func TestQueue_Withdrawn_IsNotGranted(t *testing.T) {
	q, _ := newQueue()
	a, b := arrive(t, q, Request{}), arrive(t, q, Request{})
	require.True(t, q.Withdraw(a))
	require.False(t, q.Grant(a, token, false))
	require.True(t, q.Grant(b, token, false))
	require.False(t, q.Withdraw(b))
}

// TestQueue_Release_IsCompleteAfterTheDisk: a client that released is unblocked when another one
// holds the lock by the same ticket, or when the driver has released it on the disk.
func TestQueue_Release_IsCompleteAfterTheDisk(t *testing.T) {
	q, _ := newQueue()
	a, b := arrive(t, q, Request{Mode: layout.Shared}), arrive(t, q, Request{Mode: layout.Shared})
	require.True(t, q.Grant(a, token, false))
	require.True(t, q.Release(a, ""))
	require.False(t, q.Release(a, ""), "twice")
	q.CompleteReleases()
	require.False(t, closed(a.Released()), "no other client holds it")
	require.True(t, q.Grant(b, token+1, true))
	q.CompleteReleases()
	require.True(t, closed(a.Released()))
	require.True(t, q.Release(b, ""))
	require.True(t, q.InUse())
	q.ReleasesDone()
	require.True(t, closed(b.Released()))
	require.False(t, q.InUse())
}

// TestQueue_Closed_AdmitsNoMore: all that wait learn why.
func TestQueue_Closed_AdmitsNoMore(t *testing.T) {
	q, stop := newQueue()
	_, outcome := arriveAndListen(t, q, Request{})
	q.Close(api.ErrDamaged)
	require.ErrorIs(t, <-outcome, api.ErrDamaged)
	q.Close(api.ErrLost)
	w := new(Item)
	w.Init(q, Request{}, nil)
	require.ErrorIs(t, q.Admit(w), api.ErrDamaged, "the first reason counts")
	other := New(q.host, layout.Entry{Lock: 2})
	close(stop)
	w.Init(other, Request{}, nil)
	require.ErrorIs(t, other.Admit(w), ErrStopped)
}

// TestQueue_Idle_OnlyAfterUse: memory is freed once per use.
func TestQueue_Idle_OnlyAfterUse(t *testing.T) {
	q, _ := newQueue()
	require.True(t, q.MarkIdle())
	require.False(t, q.Idle(), "it was not used")
	a := arrive(t, q, Request{})
	require.False(t, q.MarkIdle())
	require.True(t, q.Withdraw(a))
	require.True(t, q.MarkIdle())
	require.True(t, q.Idle())
	require.False(t, q.Idle())
}

// TestQueue_Tell_NotifiesNoMoreThanTheNearest: the work of one grant does not grow with the number
// of clients that wait.
func TestQueue_Tell_NotifiesNoMoreThanTheNearest(t *testing.T) {
	q, _ := newQueue()
	told := 0
	for range 1000 {
		arrive(t, q, Request{OnWaiting: func(int, int) { told++ }})
	}
	q.Tell(0)
	require.Equal(t, 1000, told, "each is notified of its first place")
	q.told.far = time.Now().Add(time.Hour) // not due yet
	told = 0
	q.Tell(1)
	require.Equal(t, nearest, told)
	q.ClientIsBack()
	q.Tell(2)
	require.Equal(t, nearest+1000, told, "all are notified in the end")
}

// TestQueue_RefuseTries_RefusesLaterOnesToo: a queue without them is not searched at each grant.
func TestQueue_RefuseTries_RefusesLaterOnesToo(t *testing.T) {
	q, _ := newQueue()
	for range 2 {
		_, outcome := arriveAndListen(t, q, Request{Try: true})
		q.RefuseTries()
		require.Empty(t, outcome, "the lock is free")
		holder := new(Item)
		holder.Init(q, Request{Mode: layout.Exclusive}, nil)
		q.mu.Lock()
		q.holds = []*Item{holder} // another client was faster
		q.mu.Unlock()
		q.RefuseTries()
		require.ErrorIs(t, <-outcome, api.ErrBusy)
		require.True(t, q.Release(holder, ""))
	}
}

// TestQueue_Long_KeepsItsOrder: a grant does not move the clients behind.
func TestQueue_Long_KeepsItsOrder(t *testing.T) {
	q, _ := newQueue()
	var want []*Item
	for range 4 * nearest {
		want = append(want, arrive(t, q, Request{}))
	}
	for len(want) > 0 {
		front := want[0]
		require.Same(t, front, q.Front())
		require.True(t, q.Grant(front, token, true))
		want = want[1:]
		if n := len(want); n > 2*nearest {
			require.True(t, q.Withdraw(want[n/2]))
			want = append(slices.Delete(want, n/2, n/2+1), arrive(t, q, Request{}))
		}
		require.Equal(t, want, q.copied([]*Item{}, &q.waiting))
	}
	require.Nil(t, q.Front())
}
