package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
)

func TestSessions_OneUser_LeavesTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newCluster(t, 8, 4).host(1)
		ss := d.sessions
		const uid = 54321
		ss.mu.Lock()
		ss.byUser[uid] = maxSessions / 4
		ss.mu.Unlock()
		s := ss.make("00000000000000000000000000000001")
		s.UID = uid
		_, err := ss.admit(s)
		require.ErrorIs(t, err, api.ErrOverload)
		require.ErrorContains(t, err, "of user 54321")
		s.UID++
		fresh, err := ss.admit(s)
		require.NoError(t, err)
		require.True(t, fresh)
		ss.remove(s)
		require.NotContains(t, ss.byUser, s.UID)
	})
}

// TestLink_Idle_IsClosed: its descriptor is freed for other clients.
func TestLink_Idle_IsClosed(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	s.srv.idleLink = realLease / 2
	l := s.link(`{"lock":{"name":"x"}}`)
	g := l.until("granted")
	idle := s.link()
	idle.ended() // the one that holds is not idle
	l.unlock(g.Token)
	l.until("released")
	l.ended()
}

// TestLink_IdleAfterARefusal_IsClosed: another goroutine than the one that reads ends its wait.
func TestLink_IdleAfterARefusal_IsClosed(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	s.srv.idleLink = realLease / 2
	s.link(`{"lock":{"name":"x"}}`).until("granted")
	l := s.link(`{"lock":{"name":"x","timeout_ms":100}}`)
	require.Equal(t, "timeout", l.until("refused").Code)
	l.ended()
}
