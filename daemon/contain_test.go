package daemon

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContain_HoldWithoutAWitness_IsRefusedWithTheReason(t *testing.T) {
	s := serveSocket(t, newCluster(t, 8, 4).host(1))
	const session = "0123456789abcdef0123456789abcdef"
	s.link(`{"lock":{"name":"x","session":"` + session + `"}}`).until("granted")
	status, answer := s.call("POST /v1/contain", `{"session":"`+session+`"}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, "bakeryd cannot contain the command: it has no part in the lock, as with --close")
}
