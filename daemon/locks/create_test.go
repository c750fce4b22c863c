package locks

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
)

// directory returns the entries on the disk.
func (c *cluster) directory() (entries []layout.Entry) {
	c.t.Helper()
	for lock := 1; lock <= c.Geo.Locks; lock++ {
		entries = append(entries, c.Entry(lock))
	}
	return entries
}

// named counts the entries with a name.
func (c *cluster) named(name string) (n int) {
	c.t.Helper()
	for _, e := range c.directory() {
		if e.Name == name {
			n++
		}
	}
	return n
}

func TestCreate(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		e, created, err := a.Create(t.Context(), "reboot", 2)
		require.NoError(t, err)
		require.True(t, created)
		require.Equal(t, "reboot", e.Name)
		require.Equal(t, 2, e.Permits)
		before := c.directory()
		again, created, err := b.Create(t.Context(), "reboot", 2)
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, e, again)
		for _, permits := range []int{0, 1, 3} {
			_, created, err = b.Create(t.Context(), "reboot", permits)
			require.ErrorIs(t, err, api.ErrPermits)
			require.False(t, created)
		}
		for name, permits := range map[string]int{"y": 9, "z": -1, "": 1, "a\nb": 1} {
			_, _, err = b.Create(t.Context(), name, permits)
			require.ErrorIs(t, err, api.ErrInvalid, "%q", name)
		}
		require.Equal(t, before, c.directory(), "a request that is refused changes nothing")
		one := acquire(t, a, Request{Name: "reboot"})
		two := acquire(t, b, Request{Name: "reboot", Permits: 2})
		acquireFails(t, c.host(3), Request{Name: "reboot", Try: true}, api.ErrBusy)
		require.NoError(t, one.Release())
		require.NoError(t, two.Release())
	})
}

// TestCreateKnowsOfARemoval: a lock that another host has removed is created again, even if this
// one remembers it.
func TestCreateKnowsOfARemoval(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		require.NoError(t, acquire(t, b, Request{Name: "x"}).Release())
		require.NoError(t, a.Remove(t.Context(), "x", false))
		e, created, err := b.Create(t.Context(), "x", 3)
		require.NoError(t, err)
		require.True(t, created)
		require.Equal(t, 3, e.Permits)
	})
}

// TestFullDirectoryAndRemoval: a removed lock makes room for another one.
func TestFullDirectoryAndRemoval(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 3)
		a, b := c.host(1), c.host(2)
		for n := range 3 {
			require.NoError(t, acquire(t, a, Request{Name: fmt.Sprint(n)}).Release())
		}
		_, _, err := b.Create(t.Context(), "more", 1)
		require.ErrorIs(t, err, api.ErrFull)
		require.NotContains(t, err.Error(), "create lock", "clients begin their error with it")
		require.NoError(t, b.Remove(t.Context(), "1", false))
		e, _, err := a.Create(t.Context(), "more", 1)
		require.NoError(t, err)
		require.Equal(t, 2, e.Lock)
		require.NoError(t, acquire(t, b, Request{Name: "more"}).Release())
		acquireFails(t, a, Request{Name: "1"}, api.ErrFull)
	})
}

// TestPlaceAmongIntents: which intents of dead hosts may still be written, and which cannot.
func TestPlaceAmongIntents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 3)
		d := c.host(1)
		want := layout.Entry{Name: "x", Permits: 1, Creation: 1}
		free := []layout.Entry{{Lock: 1, Creation: 4}, {Lock: 2}, {Lock: 3, Creation: 7}}
		used := []layout.Entry{{Lock: 1, Name: "y", Permits: 1, Creation: 4}, {Lock: 2}, {Lock: 3, Creation: 7}}
		intent := layout.Intent{Lock: 1, Name: "x", Permits: 2, Creation: 8}
		for name, test := range map[string]struct {
			entries []layout.Entry
			intents []layout.Intent
			want    layout.Entry
			err     error
		}{
			"none":                         {free, nil, layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 8}, nil},
			"of the same name":             {free, []layout.Intent{intent}, layout.Entry(intent), nil},
			"of another name":              {free, []layout.Intent{{Lock: 1, Name: "z", Permits: 1, Creation: 9}}, layout.Entry{Lock: 2, Name: "x", Permits: 1, Creation: 10}, nil},
			"of a removal":                 {free, []layout.Intent{{Lock: 1, Creation: 9}}, layout.Entry{Lock: 2, Name: "x", Permits: 1, Creation: 10}, nil},
			"where another lock is":        {used, []layout.Intent{intent}, layout.Entry{Lock: 2, Name: "x", Permits: 1, Creation: 9}, nil},
			"where there was one since":    {free, []layout.Intent{{Lock: 3, Name: "x", Permits: 1, Creation: 6}}, layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 8}, nil},
			"two that agree":               {free, []layout.Intent{intent, intent}, layout.Entry(intent), nil},
			"two that do not":              {free, []layout.Intent{intent, {Lock: 2, Name: "x", Permits: 2, Creation: 8}}, layout.Entry{}, api.ErrUnavailable},
			"in all places":                {free, []layout.Intent{{Lock: 1, Creation: 9}, {Lock: 2, Creation: 9}, {Lock: 3, Creation: 9}}, layout.Entry{}, api.ErrFull},
			"of the same name, and others": {free, []layout.Intent{{Lock: 2, Creation: 9}, intent}, layout.Entry(intent), nil},
		} {
			got, err := d.place(d.disk.Dev, &directory.Scan{Entries: test.entries}, test.intents, want)
			require.ErrorIs(t, err, test.err, name)
			if test.err == nil {
				require.Equal(t, test.want, got, name)
			}
		}
		c.Write(c.Geo.Slot(2, 1), func(buf []byte) error {
			return c.SB.Space().EncodeSlot(buf, layout.Slot{Lock: 2, Host: 1, Incarnation: 1, Creation: 20})
		})
		got, err := d.place(d.disk.Dev, &directory.Scan{Entries: free}, []layout.Intent{{Lock: 1, Creation: 9}}, want)
		require.NoError(t, err)
		require.EqualValues(t, 21, got.Creation, "a slot shows a removal that the entry does not")
	})
}
