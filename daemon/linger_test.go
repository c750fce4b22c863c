package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/layout"
)

// lingering starts host 1, which keeps a hold for an hour.
func lingering(t *testing.T, c *cluster) *mortal {
	t.Helper()
	m := &mortal{c: c, id: 1, dir: t.TempDir(), state: t.TempDir(), configure: func(cfg *Config) { cfg.Linger = time.Hour }}
	m.rise()
	return m
}

// linger has a host keep its hold of lock x for the next client, over a link. Each hold lasts for a
// time.
func (m *mortal) linger(lasts time.Duration) layout.Ticket {
	m.c.t.Helper()
	l := m.link(`{"lock":{"name":"x"}}`)
	for n := 0; ; n++ {
		g := l.until("granted")
		time.Sleep(lasts)
		l.unlock(g.Token)
		l.until("released")
		if n == 3 {
			l.leave()
			require.NotEqual(m.c.t, layout.Idle, m.c.Slot(1, m.id).Phase, "it lingers")
			return g.Token
		}
		l.say(`{"lock":{"name":"x"}}`)
	}
}

// TestRestore_Lingering_ReleasesTheSlot: the next process finds a choosing or held slot and no client,
// and makes no grant from its ticket.
func TestRestore_Lingering_ReleasesTheSlot(t *testing.T) {
	t.Parallel()
	for name, lasts := range map[string]time.Duration{"choosing": 0, "held": 2 * driver.SettleAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c *cluster
			var m *mortal
			var last layout.Ticket
			for as := false; !as; { // on a slow machine a short hold may settle
				c = realClusterAlone(t, 8, 4)
				m = lingering(t, c)
				last = m.linger(lasts)
				as = lasts > 0 == (c.Slot(1, 1).Phase == layout.Held)
				require.Zero(t, m.d.sessions.Count())
				m.kill()
			}
			m.rise()
			l := m.link(`{"lock":{"name":"x"}}`)
			require.Greater(t, l.until("granted").Token.Number(), last.Number())
			l.leave()
			eventually(t, "idle", func() bool { return c.Slot(1, 1).Phase == layout.Idle })
		})
	}
}

// TestHandOver_Lingering_ReleasesTheSlot: no slot of a lock without a client stays on the disk until the
// next process.
func TestHandOver_Lingering_ReleasesTheSlot(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := lingering(t, c)
	m.linger(0)
	holder := m.link(`{"lock":{"name":"y","session":"` + fmt.Sprintf("%032x", 7) + `"}}`)
	token := holder.until("granted").Token
	require.True(t, m.d.HandOver())
	require.Equal(t, layout.Idle, c.Slot(1, 1).Phase)
	require.NotEqual(t, layout.Idle, c.Slot(2, 1).Phase)
	m.restart()
	back := m.link(`{"lock":{"name":"y","session":"` + fmt.Sprintf("%032x", 7) + `","token":"` + token.String() + `"}}`)
	require.Equal(t, token, back.until("granted").Token)
	back.leave()
}

// TestRestore_GrantedFromALingeringHold_KeepsTheHold: it is recorded like any other.
func TestRestore_GrantedFromALingeringHold_KeepsTheHold(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := lingering(t, c)
	last := m.linger(0)
	l := m.linkAs(7, "")
	token := l.until("granted").Token
	require.Equal(t, last+1, token)
	m.kill()
	m.rise()
	back := m.linkAs(7, `,"token":"`+token.String()+`"`)
	require.Equal(t, token, back.until("granted").Token)
	back.leave()
	eventually(t, "idle", func() bool { return c.Slot(1, 1).Phase == layout.Idle })
}

// TestCount_GrantFromALingeringHold_IsAHandoff: and status shows no holder of a lingering hold.
func TestCount_GrantFromALingeringHold_IsAHandoff(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := lingering(t, c)
	m.linger(0)
	all := m.d.cfg.Tally.Locks.All()
	require.EqualValues(t, 4, all["x"].Grants.Load())
	require.EqualValues(t, 1, all["x"].Handoffs.Load(), "it was the third grant that lingered")
	require.Empty(t, m.d.vitals().Locks, "no client holds it")
	r, err := m.d.Status()
	require.NoError(t, err)
	for _, l := range r.Locks {
		if l.Name == "x" {
			require.True(t, l.Lingering)
			require.Empty(t, l.Holders)
			require.Empty(t, l.Queue)
		}
	}
}

// TestTable_ClientConfirmsOrHasAWitness_DoesNotLinger: bakeryd knows a wrapper by that, also one that
// was built before there was no_linger.
func TestTable_ClientConfirmsOrHasAWitness_DoesNotLinger(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"confirm", "witness"} {
		t.Run(option, func(t *testing.T) {
			c := realCluster(t, 8, 4)
			m := lingering(t, c)
			for range 5 {
				l := m.link(`{"lock":{"name":"x","` + option + `":true}}`)
				g := l.until("granted")
				if option == "confirm" {
					l.say(`{"confirm":"` + g.Token.String() + `"}`)
					l.until("confirmed")
				}
				l.unlock(g.Token)
				l.until("released")
				l.leave()
				require.Equal(t, layout.Idle, c.Slot(1, 1).Phase)
			}
		})
	}
}

// TestRestore_WrapperWaits_DoesNotLinger: the handover file does not keep that a client is a wrapper.
func TestRestore_WrapperWaits_DoesNotLinger(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := lingering(t, c)
	token := m.linkAs(1, "").until("granted").Token
	for n := range 3 {
		m.linkAs(2+n, `,"confirm":true`).until("waiting")
	}
	m.restart()
	holder := m.linkAs(1, `,"token":"`+token.String()+`"`)
	holder.until("granted")
	holder.unlock(token)
	holder.until("released")
	for n := range 3 {
		l := m.linkAs(2+n, `,"confirm":true`)
		g := l.until("granted")
		l.say(`{"confirm":"` + g.Token.String() + `"}`)
		l.until("confirmed")
		l.unlock(g.Token)
		l.until("released")
		l.leave()
		require.Equal(t, layout.Idle, c.Slot(1, 1).Phase)
	}
}
