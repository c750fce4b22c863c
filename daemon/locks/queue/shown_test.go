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
	addHolds(&l, self, []*Item{{token: later, Request: Request{PID: 6}}}, 0)
	require.Equal(t, 5, l.Holders[0].PID)
	addHolds(&l, self, []*Item{{q: &Queue{}, token: first.Grant(1), Request: Request{PID: 7}}}, 0)
	require.Len(t, l.Holders, 1)
	require.Equal(t, 7, l.Holders[0].PID)
	require.True(t, l.Holders[0].Published)

	free := report.Lock{}
	addHolds(&free, self, []*Item{{token: later}}, 0)
	require.Empty(t, free.Holders)
}

// TestAddHolds_Lingering_NoHolderIsShown: the disk shows one, or an attempt.
func TestAddHolds_Lingering_NoHolderIsShown(t *testing.T) {
	self, ticket := &report.ThisHost{ID: 1}, layout.MakeTicket(10, 1)
	for _, l := range []report.Lock{
		{Holders: []report.Holder{{Host: 1, Token: ticket, PID: 5}}, Queue: []report.Queued{{Host: 2, Place: 1}}},
		{Queue: []report.Queued{{Host: 1, Ticket: ticket, Place: 1}, {Host: 2, Place: 2}}},
	} {
		addHolds(&l, self, nil, ticket)
		require.True(t, l.Lingering)
		require.Empty(t, l.Holders)
		require.Equal(t, []report.Queued{{Host: 2, Place: 1}}, l.Queue)
	}
	before := report.Lock{Holders: []report.Holder{{Host: 1, Token: layout.MakeTicket(9, 1)}}}
	addHolds(&before, self, nil, ticket)
	require.False(t, before.Lingering, "the snapshot is of an earlier ticket")
	require.Len(t, before.Holders, 1)
}
