package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

const (
	x = layout.Exclusive
	r = layout.Shared
)

func took(host int, mode layout.Mode, token layout.Ticket, asked, answered time.Duration) Call {
	return Call{Kind: Acquire, Host: host, Mode: mode, Token: token, Asked: asked, Answered: answered}
}

func letGo(c Call, at time.Duration) Call {
	c.Kind, c.Asked, c.Answered = Release, at, at
	return c
}

func changed(c Call, mode layout.Mode, asked, answered time.Duration) Call {
	c.Kind, c.From, c.Mode, c.Asked, c.Answered = Change, c.Mode, mode, asked, answered
	return c
}

// cutShort ends a hold at an unknown moment, before another one.
func cutShort(c Call, from, before time.Duration) Call {
	c.Kind, c.Asked, c.Answered = Release, from, before
	return c
}

func check(permits int, calls ...Call) error {
	recorder := New(permits)
	for _, c := range calls {
		recorder.Add(c)
	}
	return recorder.Rest().Check(time.Minute)
}

func TestCheck_MadeUpHistories(t *testing.T) {
	a, b, c := took(1, x, 10, 1, 5), took(2, x, 20, 2, 30), took(3, x, 30, 3, 40)
	ra, rb := took(1, r, 10, 1, 5), took(2, r, 20, 2, 6)
	for name, h := range map[string]struct {
		permits int
		calls   []Call
		good    bool
	}{
		"one after the other":                 {1, []Call{a, letGo(a, 20), b, letGo(b, 31)}, true},
		"two writers":                         {1, []Call{a, b, letGo(a, 31), letGo(b, 32)}, false},
		"two writers of one host":             {1, []Call{a, took(1, x, 11, 2, 6), letGo(a, 31)}, false},
		"a writer that is still inside":       {1, []Call{a, b}, false},
		"a token that goes back":              {1, []Call{b, letGo(b, 31), took(1, x, 10, 32, 33)}, false},
		"a token twice":                       {1, []Call{a, letGo(a, 20), took(2, x, 10, 2, 30)}, false},
		"a token before that of a reader":     {1, []Call{rb, letGo(rb, 7), took(1, x, 10, 8, 9)}, false},
		"readers":                             {1, []Call{ra, rb, letGo(ra, 7), letGo(rb, 8)}, true},
		"readers whose tokens go back":        {1, []Call{rb, letGo(rb, 7), took(1, r, 10, 8, 9)}, true},
		"a writer among readers":              {1, []Call{ra, took(2, x, 20, 2, 6), letGo(ra, 7)}, false},
		"a reader next to a writer":           {1, []Call{a, took(2, r, 20, 2, 6), letGo(a, 7)}, false},
		"two permits":                         {2, []Call{a, b, letGo(a, 31), letGo(b, 32)}, true},
		"two permits, tokens back":            {2, []Call{b, a, letGo(a, 31), letGo(b, 32)}, true},
		"two permits, three writers":          {2, []Call{a, b, c, letGo(a, 41), letGo(b, 42)}, false},
		"two permits, twice on a host":        {2, []Call{a, took(1, x, 20, 2, 6), letGo(a, 7)}, false},
		"two permits, a reader":               {2, []Call{a, took(2, r, 20, 2, 6), letGo(a, 7)}, false},
		"a release of what was not had":       {1, []Call{a, letGo(rb, 7)}, false},
		"a release twice":                     {1, []Call{a, letGo(a, 7), letGo(a, 8)}, false},
		"a release of another host":           {2, []Call{a, letGo(b, 7)}, false},
		"a downgrade lets readers in":         {1, []Call{a, changed(a, r, 10, 10), took(2, r, 20, 2, 12), letGo(rb, 20)}, true},
		"a downgrade lets no writer in":       {1, []Call{a, changed(a, r, 10, 10), took(2, x, 20, 2, 12)}, false},
		"an upgrade alone":                    {1, []Call{ra, changed(ra, x, 10, 11), letGo(a, 20), b}, true},
		"an upgrade after a reader":           {1, []Call{ra, rb, letGo(rb, 7), changed(ra, x, 10, 11)}, true},
		"an upgrade next to a reader":         {1, []Call{ra, rb, changed(ra, x, 10, 11), letGo(rb, 20)}, false},
		"an upgrade admits no other":          {1, []Call{ra, changed(ra, x, 10, 11), took(2, r, 20, 2, 12)}, false},
		"an upgrade whose token is too small": {1, []Call{took(2, x, 20, 1, 2), letGo(b, 3), took(1, r, 10, 4, 5), changed(ra, x, 10, 11)}, false},
		"a change of what was not had":        {1, []Call{a, changed(ra, x, 10, 11)}, false},
		"a hold cut short in time":            {1, []Call{a, cutShort(a, 6, 30), b}, true},
		"a hold cut short at any time":        {1, []Call{a, cutShort(a, 6, Unknown), b}, true},
		"a hold cut short too late":           {1, []Call{a, cutShort(a, 31, Unknown), b}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(h.permits, h.calls...)
			if h.good {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "is one of a lock")
			}
		})
	}
}

// A window is complete, and a token that goes back is found across the cut.
func TestWindow_TokenGoesBackOverTheCut(t *testing.T) {
	const least = 20
	recorder := New(1)
	at, token := time.Duration(0), layout.Ticket(0)
	one := func() *History {
		at, token = at+10, token+10
		c := took(1, x, token, 0, at) // asked at the start
		recorder.Add(c)
		require.Nil(t, recorder.Window(0), "the lock is held")
		recorder.Add(letGo(c, at+5))
		return recorder.Window(least)
	}
	for range 3 {
		for range least/2 - 1 {
			require.Nil(t, one())
		}
		whole := one()
		require.Len(t, whole.Calls, least)
		require.NoError(t, whole.Check(time.Minute))
	}
	token -= 20
	one()
	require.Error(t, recorder.Rest().Check(time.Minute))
}

func TestImpossible_EndsWithTheFirstWrongCall(t *testing.T) {
	a, b, c := took(1, x, 10, 1, 5), took(2, x, 20, 2, 30), took(3, x, 30, 3, 40)
	recorder := New(1)
	for _, call := range []Call{c, a, letGo(a, 20), b, letGo(c, 50)} {
		recorder.Add(call)
	}
	require.Equal(t, []Call{a, letGo(a, 20), b, c}, recorder.Rest().Impossible())
	require.NoError(t, check(1, a, letGo(a, 20), b))
}
