package locks

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// listener is a client that receives requests.
type listener chan Requested

func (l listener) request(name string, mode layout.Mode) Request {
	return Request{Name: name, Mode: mode, OnRequest: func(r Requested) { l <- r }}
}

func newListener() listener { return make(listener, 16) }

func (l listener) hears(t *testing.T, want Requested) {
	t.Helper()
	require.Equal(t, want, received(t, "the request", l))
}

// nothing waits as long as an unwanted request would take.
func nothing(t *testing.T, ls ...listener) {
	t.Helper()
	time.Sleep(3 * driver.LookForRequests(2*time.Second))
	for _, l := range ls {
		select {
		case r := <-l:
			t.Fatalf("notified of %+v", r)
		default:
		}
	}
}

func asks(t *testing.T, d *testHost, name, message string) []Asked {
	t.Helper()
	asked, err := d.Request(t.Context(), name, message)
	require.NoError(t, err)
	return asked
}

func TestRequestIsHeardOnce(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		first, next := newListener(), newListener()
		h := acquire(t, a, first.request("x", layout.Exclusive))
		require.Equal(t, []Asked{{Host: 1, HostName: "db1", Token: h.Token()}}, asks(t, b, "x", "reboot"),
			"though the hold has just begun")
		first.hears(t, Requested{Host: 2, HostName: "db2", Message: "reboot"})
		waiting := start(t, a, next.request("x", layout.Exclusive))
		require.NoError(t, h.Release())
		h = got(t, waiting) // by the same ticket
		nothing(t, first, next)
		require.Len(t, asks(t, b, "x", "reboot"), 1)
		next.hears(t, Requested{Host: 2, HostName: "db2", Message: "reboot"})
		require.NoError(t, h.Release())

		later := newListener()
		h = acquire(t, a, later.request("x", layout.Exclusive))
		nothing(t, first, next, later)
		require.NoError(t, h.Release())
		_, err := b.Request(t.Context(), "x", "")
		require.ErrorIs(t, err, api.ErrFree)
	})
}

func TestRequestOfALockThatNobodyHas(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		_, err := d.Request(t.Context(), "x", "")
		require.ErrorIs(t, err, api.ErrNoLock)
		require.True(t, c.Entry(1).Blank(), "it is not created")
		_, err = d.Request(t.Context(), "a\nb", "")
		require.ErrorIs(t, err, api.ErrInvalid)
		_, err = d.Request(t.Context(), "x", string(bytes.Repeat([]byte("x"), 55)))
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, "request message of 55 bytes, want 0 to 54")
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		_, err = d.Request(t.Context(), "x", "")
		require.ErrorIs(t, err, api.ErrFree)
	})
}

func TestRequestToTheOwnHost(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		one, two := newListener(), newListener()
		h1 := acquire(t, a, one.request("x", layout.Shared))
		h2 := acquire(t, a, two.request("x", layout.Shared))
		h3 := acquire(t, a, Request{Name: "x", Mode: layout.Shared}) // receives no requests
		asked := asks(t, a, "x", "")
		require.Len(t, asked, 3)
		require.Equal(t, Asked{Host: 1, HostName: "db1", Token: h1.Token(), Mode: layout.Shared}, asked[0])
		for _, l := range []listener{one, two} {
			l.hears(t, Requested{Host: 1, HostName: "db1"})
		}
		nothing(t, one, two)
		for _, h := range []*Hold{h1, h2, h3} {
			require.NoError(t, h.Release())
		}
	})
}

// TestRequestToAllHolders: all holders of a semaphore or a shared lock get the request.
func TestRequestToAllHolders(t *testing.T) {
	t.Parallel()
	for name, req := range map[string]Request{
		"semaphore": {Permits: 2},
		"shared":    {Mode: layout.Shared},
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, b, e := c.host(1), c.host(2), c.host(3)
			one, two, third := newListener(), newListener(), newListener()
			with := func(l listener) Request {
				r := l.request("x", req.Mode)
				r.Permits = req.Permits
				return r
			}
			h1, h2 := acquire(t, a, with(one)), acquire(t, b, with(two))
			// behind both
			waiting := start(t, e, Request{Name: "x", OnRequest: func(r Requested) { third <- r }})
			require.ElementsMatch(t, []Asked{{Host: 1, HostName: "db1", Token: h1.Token(), Mode: req.Mode}, {Host: 2, HostName: "db2", Token: h2.Token(), Mode: req.Mode}}, asks(t, e, "x", "now"))
			for _, l := range []listener{one, two} {
				l.hears(t, Requested{Host: 3, HostName: "db3", Message: "now"})
			}
			nothing(t, one, two)
			require.NoError(t, h1.Release())
			require.NoError(t, h2.Release())
			h3 := got(t, waiting)
			nothing(t, one, two, third)
			require.NoError(t, h3.Release())
		})
	}
}

// TestRequestByOneWhoWaits: its slot continues in the protocol, and it keeps its place.
func TestRequestByOneWhoWaits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b, e := c.host(1), c.host(2), c.host(3)
		l := newListener()
		h := acquire(t, a, l.request("x", layout.Exclusive))
		second := start(t, b, Request{Name: "x"})
		third := start(t, e, Request{Name: "x"})
		before := c.Slot(1, 2)
		require.Equal(t, layout.Waiting, before.Phase)
		for n := range 3 {
			asks(t, b, "x", fmt.Sprint("turn ", n))
		}
		after := c.Slot(1, 2)
		require.Equal(t, layout.MakeTicket(h.Token().Number(), 1), after.Request.Ticket)
		require.Equal(t, "turn 2", after.Request.Message)
		require.Greater(t, after.Sequence, before.Sequence)
		after.Request, after.Sequence = before.Request, before.Sequence
		require.Equal(t, before, after)
		for r := (Requested{}); r.Message != "turn 2"; { // a newer one may have replaced one unread
			r = received(t, "the request", l)
		}
		require.NoError(t, h.Release())
		h = got(t, second)
		none(t, third)
		require.Equal(t, "turn 2", c.Slot(1, 2).Request.Message, "carried on")
		require.NoError(t, h.Release())
		require.NoError(t, got(t, third).Release())
	})
}

// put writes a slot of lock 1 as another host would.
func (c *cluster) put(s layout.Slot) {
	c.t.Helper()
	s.Lock = 1
	c.Write(c.Geo.Slot(1, s.Host), func(buf []byte) error { return c.SB.Space().EncodeSlot(buf, s) })
}

func TestRequestCountsHoldersOnly(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		own, e := c.Slot(1, 1), c.Entry(1)
		held := layout.Slot{Host: 2, Incarnation: b.mem.Incarnation(), Creation: e.Creation, Phase: layout.Held,
			Ticket: layout.MakeTicket(own.Ticket.Number()+1, 2)}
		for name, change := range map[string]func(*layout.Slot){
			"void":             func(s *layout.Slot) { s.Incarnation++ },
			"never joined":     func(s *layout.Slot) { s.Host, s.Ticket = 3, layout.MakeTicket(s.Ticket.Number(), 3) },
			"another creation": func(s *layout.Slot) { s.Creation-- },
			"waiting":          func(s *layout.Slot) { s.Phase = layout.Waiting },
			"choosing":         func(s *layout.Slot) { s.Phase = layout.Choosing },
			"idle":             func(s *layout.Slot) { s.Phase = layout.Idle },
		} {
			s := held
			change(&s)
			c.put(s)
			_, err := a.Request(t.Context(), "x", "")
			require.ErrorIs(t, err, api.ErrFree, name)
			c.put(layout.Slot{Host: s.Host, Incarnation: s.Incarnation, Ticket: s.Ticket})
		}
		require.Equal(t, own, c.Slot(1, 1), "nothing was asked")
		c.put(held)
		require.Equal(t, []Asked{{Host: 2, HostName: "db2", Token: held.Ticket}}, asks(t, a, "x", ""))
		held.Phase = layout.Idle
		c.put(held)
	})
}

// TestRequestsThatDoNotCount: requests in other slots count only if they are of this lock and this
// hold.
func TestRequestsThatDoNotCount(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		l := newListener()
		h := acquire(t, a, l.request("x", layout.Exclusive))
		e, ticket := c.Entry(1), layout.MakeTicket(h.Token().Number(), 1)
		r := layout.Request{Ticket: ticket, At: time.Unix(1, 0), Message: "not for you"}
		other := layout.Slot{Host: 3, Incarnation: 7, Creation: e.Creation}

		older := other
		older.Request = r
		older.Request.Ticket = layout.MakeTicket(ticket.Number()-1, 1)
		c.put(older)
		removed := other
		removed.Host, removed.Creation, removed.Request = 2, e.Creation-1, r
		c.put(removed)
		nothing(t, l)

		older.Request = r // by an incarnation that is over, which does not matter
		c.put(older)
		l.hears(t, Requested{Host: 3, Message: "not for you"})
		c.Spoil(c.Geo.Slot(1, 2)) // an unreadable slot
		older.Request.At = time.Unix(2, 0)
		c.put(older)
		l.hears(t, Requested{Host: 3, Message: "not for you"})
		nothing(t, l)
		c.put(removed) // is readable again
		require.NoError(t, h.Release())
	})
}

// TestRequestIsOfOneCreation: a lock that is created again does not begin with requests for the old
// one.
func TestRequestIsOfOneCreation(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, Request{Name: "x"})
		asks(t, b, "x", "old")
		require.Equal(t, "old", c.Slot(1, 2).Request.Message)
		require.NoError(t, h.Release())
		e := c.Entry(1)
		e.Creation++
		c.WriteEntry(e)
		l := newListener()
		h = acquire(t, c.host(3), l.request("x", layout.Exclusive))
		require.Len(t, asks(t, b, "x", "new"), 1)
		l.hears(t, Requested{Host: 2, HostName: "db2", Message: "new"})
		require.Equal(t, e.Creation, c.Slot(1, 2).Creation)
		require.NoError(t, h.Release())

		e.Creation++
		c.WriteEntry(e)
		_, err := b.Request(t.Context(), "x", "") // finds the newer entry
		require.ErrorIs(t, err, api.ErrFree)
		require.NoError(t, acquire(t, b, Request{Name: "x"}).Release())
		s := c.Slot(1, 2)
		require.Equal(t, e.Creation, s.Creation)
		require.Zero(t, s.Request)
	})
}

func TestRequestWhileTheDeviceHangs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		h := acquire(t, c.host(1), Request{Name: "x"})
		d, f := c.faultyHost(2)
		f.Inject(disktest.Fault{Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := d.Request(ctx, "x", "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = d.Request(t.Context(), "x", "")
		require.ErrorIs(t, err, api.ErrUnavailable, "the lease is lost")
		require.NoError(t, h.Release())
	})
}

// TestRequestWithAClockSetBack: a newer request has a later time nevertheless.
func TestRequestWithAClockSetBack(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		l := newListener()
		h := acquire(t, a, l.request("x", layout.Exclusive))
		r := layout.Request{Ticket: layout.MakeTicket(h.Token().Number(), 1), Message: "same",
			At: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
		c.put(layout.Slot{Host: 2, Incarnation: b.mem.Incarnation(), Creation: c.Entry(1).Creation, Request: r})
		l.hears(t, Requested{Host: 2, HostName: "db2", Message: "same"})
		asks(t, b, "x", "same")
		l.hears(t, Requested{Host: 2, HostName: "db2", Message: "same"})
		require.True(t, c.Slot(1, 2).Request.At.After(r.At))
		require.NoError(t, h.Release())
	})
}
