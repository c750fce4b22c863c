package daemon

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/command"
)

// TestContain_ProcessOfAnotherUser_IsRefused: the pid of the process that connected may be another
// process's by now.
func TestContain_ProcessOfAnotherUser_IsRefused(t *testing.T) {
	s := police(t, realCluster(t, 8, 4).host(1), fmt.Sprintf("allow user %d *\n", stranger))
	const id = "00000000000000000000000000000007"
	holder := linkBy(t, dialAs(t, stranger, s.path), fmt.Sprintf(`{"lock":{"name":"x","session":%q,"witness":true}}`, id))
	holder.until("granted")
	require.NotNil(t, sessionOf(s.d, id).Group, "the test runs where there are cgroups of version 2")
	conn := dialAs(t, stranger, s.path) // by this process, which is root's
	status, e := s.by(conn, "POST /v1/contain", fmt.Sprintf(`{"session":%q}`, id))
	require.Equal(t, 400, status, e.Message)
	require.Contains(t, e.Message, "is not one of user 54321")
	require.NoDirExists(t, sessionOf(s.d, id).Group.Dir)
}

func TestContain_SessionWithoutAWitness_IsRefused(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	const id = "00000000000000000000000000000007"
	s.link(fmt.Sprintf(`{"lock":{"name":"x","session":%q}}`, id)).until("granted")
	status, answer := s.call("POST /v1/contain", fmt.Sprintf(`{"session":%q}`, id))
	require.Equal(t, 503, status)
	require.Contains(t, answer, command.ErrNoGroup.Error())
}

func TestContain_HoldWithoutAWitness_IsRefusedWithTheReason(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	const session = "0123456789abcdef0123456789abcdef"
	s.link(`{"lock":{"name":"x","session":"` + session + `"}}`).until("granted")
	status, answer := s.call("POST /v1/contain", `{"session":"`+session+`"}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, "bakeryd cannot contain the command: it has no part in the lock, as with --close")
}
