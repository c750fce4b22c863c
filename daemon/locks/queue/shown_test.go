package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// TestAddHoldsOfALaterTicket: the snapshot of the disk stays if the lock has changed hands since.
func TestAddHoldsOfALaterTicket(t *testing.T) {
	self := &report.ThisHost{ID: 1}
	first, later := layout.MakeTicket(10, 1), layout.MakeTicket(20, 1)
	l := report.Lock{Holders: []report.Holder{{Host: 1, Token: first, PID: 5}}, Queue: []report.Queued{{Host: 2, Place: 1}}}
	addHolds(&l, self, []*Item{{token: later, Request: Request{PID: 6}}})
	require.Equal(t, 5, l.Holders[0].PID)
	addHolds(&l, self, []*Item{{q: &Queue{}, token: first.Grant(1), Request: Request{PID: 7}}})
	require.Len(t, l.Holders, 1)
	require.Equal(t, 7, l.Holders[0].PID)
	require.True(t, l.Holders[0].Published)

	free := report.Lock{}
	addHolds(&free, self, []*Item{{token: later}})
	require.Empty(t, free.Holders)
}
