package main

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func check(t *testing.T, permits int, ops ...op) error {
	t.Helper()
	h := &historyOf{first: occupied{permits: permits}}
	for _, o := range ops {
		require.Nil(t, h.add(o))
	}
	result, err := h.cut().check(time.Minute)
	require.NotEqual(t, porcupine.Unknown, result)
	return err
}

func took(host int, mode layout.Mode, token layout.Ticket, from, to time.Duration) op {
	return op{kind: opAcquire, host: host, mode: mode, token: token, from: from, to: to}
}

func letGo(o op, at time.Duration) op {
	o.kind, o.from, o.to = opRelease, at, at
	return o
}

func changed(kind opKind, o op, from, to time.Duration) op {
	o.kind, o.from, o.to = kind, from, to
	return o
}

func TestPorcupine(t *testing.T) {
	x, r := layout.Exclusive, layout.Shared
	a, b, c := took(1, x, 10, 1, 5), took(2, x, 20, 2, 30), took(3, x, 30, 3, 40)
	ra, rb := took(1, r, 10, 1, 5), took(2, r, 20, 2, 6)
	for name, c := range map[string]struct {
		permits int
		ops     []op
		good    bool
	}{
		"one after the other": {1, []op{a, letGo(a, 20), b, letGo(b, 31)}, true},
		"two at once":         {1, []op{a, b, letGo(a, 31), letGo(b, 32)}, false},
		"a token goes back":   {1, []op{b, letGo(b, 31), took(1, x, 10, 32, 33), letGo(a, 34)}, false},
		"readers":             {1, []op{ra, rb, letGo(ra, 7), letGo(rb, 8)}, true},
		"a writer among them": {1, []op{ra, took(2, x, 20, 2, 6), letGo(ra, 7)}, false},
		"two permits":         {2, []op{a, b, letGo(a, 31), letGo(b, 32)}, true},
		"and three":           {2, []op{a, b, c, letGo(a, 41), letGo(b, 42)}, false},
		"and one host":        {2, []op{a, took(1, x, 20, 2, 6), letGo(a, 7)}, false},
		"to share":            {1, []op{a, changed(opDowngrade, a, 10, 10), took(2, r, 20, 2, 12), letGo(rb, 20)}, true},
		"to have it alone":    {1, []op{ra, changed(opUpgrade, took(1, x, 10, 0, 0), 10, 11), letGo(a, 20), b}, true},
		"beside a reader":     {1, []op{ra, rb, changed(opUpgrade, took(1, x, 10, 0, 0), 10, 11), letGo(rb, 20)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.good {
				require.NoError(t, check(t, c.permits, c.ops...))
			} else {
				require.Error(t, check(t, c.permits, c.ops...))
			}
		})
	}
}

// TestWindows: what is cut off is whole, and a token that goes back is found over the cut.
func TestWindows(t *testing.T) {
	h := &historyOf{first: occupied{permits: 1}}
	at, token := time.Duration(0), layout.Ticket(0)
	one := func() (whole *historyOf) {
		at, token = at+10, token+10
		o := took(1, layout.Exclusive, token, 0, at) // asked for at the very beginning
		require.Nil(t, h.add(o))
		gone := letGo(o, at+5)
		gone.quiet = true
		return h.add(gone)
	}
	for range 3 {
		var whole *historyOf
		for n := 0; whole == nil; n++ {
			require.Less(t, n, window)
			whole = one()
		}
		require.GreaterOrEqual(t, len(whole.ops), window)
		_, err := whole.check(time.Minute)
		require.NoError(t, err)
	}
	token -= 20
	one()
	_, err := h.cut().check(time.Minute)
	require.Error(t, err)
}
