package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestConfirmWithin(t *testing.T) {
	require.Equal(t, 2*time.Second, confirmWithin(30*time.Second))
	require.Equal(t, time.Second, confirmWithin(6*time.Second))
}

// TestLink_UnconfirmedGrant_IsPassedOn: a client that does not run when its turn comes does not keep the others waiting.
func TestLink_UnconfirmedGrant_IsPassedOn(t *testing.T) {
	s := serveSocket(t, newCluster(t, 8, 4).host(1))
	stopped := s.link(`{"lock":{"name":"x","confirm":true,"witness":true}}`)
	first := stopped.until("granted")
	next := s.link(`{"lock":{"name":"x","confirm":true}}`)
	g := next.until("granted")
	next.say(fmt.Sprintf(`{"confirm":"%v"}`, g.Token))
	next.until("confirmed")

	refused := stopped.until("refused")
	require.Equal(t, "unconfirmed", refused.Code)
	stopped.say(fmt.Sprintf(`{"confirm":"%v"}`, first.Token))
	require.Equal(t, "lost", stopped.until("refused").Code, "it comes too late")
	next.unlock(g.Token)
	next.until("released")
	again := s.link(`{"lock":{"name":"x","confirm":true}}`)
	again.until("granted")
}

// TestLink_ConfirmedGrant_Stays: beyond the bound.
func TestLink_ConfirmedGrant_Stays(t *testing.T) {
	d := newCluster(t, 8, 4).host(1)
	s := serveSocket(t, d)
	holder := s.link(`{"lock":{"name":"x","confirm":true}}`)
	g := holder.until("granted")
	holder.say(fmt.Sprintf(`{"confirm":"%v"}`, g.Token))
	require.Positive(t, *holder.until("confirmed").LeaseMS)
	f := holder.bound(d)
	require.Nil(t, f.link.confirm, "nothing is to pass it on")
	holder.unlock(g.Token)
	holder.until("released")
}

// bound returns the one follower that there is.
func (l *testLink) bound(d *Daemon) *follower {
	l.t.Helper()
	held, _ := d.sessions.holding()
	require.Len(l.t, held, 1)
	return held[0].linkFollower()
}

// TestLink_UnconfirmedGrantOfAnotherToken_IsRefused: only the grant that was told can be confirmed.
func TestLink_UnconfirmedGrantOfAnotherToken_IsRefused(t *testing.T) {
	s := serveSocket(t, newCluster(t, 8, 4).host(1))
	l := s.link(`{"lock":{"name":"x"}}`)
	g := l.until("granted")
	other := layout.Ticket(uint64(*g.Token) + 1)
	l.say(fmt.Sprintf(`{"confirm":"%v"}`, other))
	require.Equal(t, "lost", l.until("refused").Code)
}

func TestStream_Confirm_IsRefused(t *testing.T) {
	s := serveSocket(t, newCluster(t, 8, 4).host(1))
	conn := s.dial()
	ask(t, conn, `{"name":"x","confirm":true}`, "")
	await(t, conn, "a grant is confirmed on a link only")
}
