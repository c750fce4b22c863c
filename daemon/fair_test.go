package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/server"
)

// TestLink_Idle_IsClosed: its descriptor is freed for other clients.
func TestLink_Idle_IsClosed(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1), func(c *server.Config) { c.IdleLink = realLease / 2 })
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
	s := serveSocket(t, realCluster(t, 8, 4).host(1), func(c *server.Config) { c.IdleLink = realLease / 2 })
	s.link(`{"lock":{"name":"x"}}`).until("granted")
	l := s.link(`{"lock":{"name":"x","timeout_ms":100}}`)
	require.Equal(t, "timeout", l.until("refused").Code)
	l.ended()
}
