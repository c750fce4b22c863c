package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestRepairRefusesWithoutIntents: an unreadable intent of a host that is up may be newer than the
// readable ones.
func TestRepairRefusesWithoutIntents(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(c *lockspacetest.Lockspace){
		"unreadable": func(c *lockspacetest.Lockspace) { c.Spoil(c.Geo.Slot(0, 1)) },
		"no intent": func(c *lockspacetest.Lockspace) {
			c.PutSlot(layout.Slot{Lock: 0, Host: 1, Creation: 1, Ticket: layout.MakeTicket(5, 1), Value: []byte("junk")})
		},
		"numbers used up": func(c *lockspacetest.Lockspace) {
			c.PutSlot(layout.Slot{Lock: 1, Host: 1, Creation: layout.MaxNumber, Ticket: layout.MakeTicket(5, 1)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := lockspacetest.New(t, 4, 4, time.Now())
			c.Now = 5
			c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLive, ReadHorizon: 4})
			c.Intend(3, layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5})
			c.Spoil(c.Geo.Entry(1))
			spoil(c)
			r, err := PlanEntryRepair(c.Disk.Open(), c.SB, 1, 2, nil, nil)
			require.NoError(t, err)
			require.ErrorIs(t, r.Err, ErrNotRepaired)
		})
	}
}
