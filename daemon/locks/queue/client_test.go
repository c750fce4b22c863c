package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// user is a Client that uses its queue whenever it is called, which needs the queue's mutex.
type user struct {
	w     *Item
	calls []string
	then  func(call string)
}

func (u *user) called(call string) {
	u.w.Queue().InUse()
	u.calls = append(u.calls, call)
	if u.then != nil {
		u.then(call)
	}
}

func (u *user) Follow(w *Item)              { u.w = w }
func (u *user) KeepPlace(*Item)             { u.called("place") }
func (u *user) KeepGrant()                  { u.called("grant") }
func (u *user) KeepMode(layout.Mode)        { u.called("mode") }
func (u *user) KeepRelease()                { u.called("release") }
func (u *user) Forget()                     { u.called("forget") }
func (u *user) Detached() bool              { u.called("detached"); return false }
func (u *user) Listening() bool             { u.called("listening"); return true }
func (u *user) Containment() string         { u.called("containment"); return "" }
func (u *user) LeftOver() ([]int, bool)     { u.called("left over"); return nil, false }
func (u *user) NestedUnder() *layout.Holder { u.called("nested"); return nil }
func (u *user) request(r Request) Request {
	r.Client = u
	r.Gone = func() bool { u.called("gone"); return false }
	r.OnWaiting = func(int, int) { u.called("waiting") }
	r.OnRequest = func(Requested) { u.called("requested") }
	return r
}

// TestQueue_Clients_AreCalledWithoutTheMutex: each of them may use the queue.
func TestQueue_Clients_AreCalledWithoutTheMutex(t *testing.T) {
	q, _ := newQueue()
	u := new(user)
	w := arrive(t, q, u.request(Request{Mode: layout.Shared}))
	require.Same(t, w, u.w)
	q.Tell(0)
	q.Holder(layout.Waiting)
	q.locals()
	require.True(t, q.Grant(w, token, false))
	require.True(t, q.Listening())
	require.True(t, q.Requested(Requested{}))
	require.True(t, q.SetMode(w, layout.Exclusive))
	require.ErrorIs(t, q.Admit(&Item{Request: Request{Try: true}}), api.ErrBusy)
	require.True(t, q.Release(w, ""))
	q.ReleasesDone()
	require.Equal(t, []string{"place", "waiting", "nested", "nested", "grant", "listening", "listening", "requested", "mode", "gone",
		"release", "forget"}, u.calls)
}

// TestQueue_Release_IsRecordedBeforeTheDriverSeesIt: until the release is in the handover file,
// the driver grants the lock to no other client, and changes the hold no more.
func TestQueue_Release_IsRecordedBeforeTheDriverSeesIt(t *testing.T) {
	q, _ := newQueue()
	u := new(user)
	w := arrive(t, q, u.request(Request{}))
	require.True(t, q.Grant(w, token, false))
	u.then = func(call string) {
		if call == "release" {
			require.Equal(t, 1, q.Holders())
			require.False(t, q.SetMode(w, layout.Shared))
			require.False(t, q.Release(w, ""), "twice")
		}
	}
	require.True(t, q.Release(w, ""))
	require.Zero(t, q.Holders())
	require.False(t, slices.Contains(u.calls, "mode"))
}

// TestQueue_Try_BehindAClientThatArrivesMeanwhile_IsBusy: a client that does not wait is not queued
// behind one that does, even if that one arrives while the holders are asked whether they have gone.
func TestQueue_Try_BehindAClientThatArrivesMeanwhile_IsBusy(t *testing.T) {
	q, _ := newQueue()
	first := true
	holder := arrive(t, q, Request{Mode: layout.Shared, Gone: func() bool {
		if first {
			first = false
			arrive(t, q, Request{Mode: layout.Exclusive})
		}
		return false
	}})
	require.True(t, q.Grant(holder, token, false))
	require.ErrorIs(t, q.Admit(&Item{Request: Request{Mode: layout.Shared, Try: true}}), api.ErrBusy)
	require.False(t, first)
}

// asked is a client that is asked below which holder it waits.
type asked struct {
	user
	then func()
}

func (a *asked) NestedUnder() *layout.Holder { a.then(); return nil }

// TestQueue_Locals_ClientIsGrantedAndChangesItsMode_NoRace: clients are described without the mutex,
// which guards the mode of a client that is granted the lock meanwhile.
func TestQueue_Locals_ClientIsGrantedAndChangesItsMode_NoRace(t *testing.T) {
	q, _ := newQueue()
	a := new(asked)
	first := arrive(t, q, Request{Mode: layout.Shared, Client: a})
	second := arrive(t, q, Request{Mode: layout.Shared})
	changed := make(chan struct{})
	a.then = func() {
		go func() {
			q.Withdraw(first)
			q.Grant(second, token, false)
			q.SetMode(second, layout.Exclusive)
			close(changed)
		}()
		time.Sleep(100 * time.Millisecond) // no synchronization: the race detector must see the change
	}
	require.Len(t, q.locals(), 2)
	<-changed
}
