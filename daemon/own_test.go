package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// byRoot takes locks for bakeryd itself.
var byRoot = session.Client{May: func(string) error { return nil }}

func take(t *testing.T, d *Host, req api.LockRequest) *session.Own {
	t.Helper()
	req.NonBlock = true
	own, err := d.sessions.Take(req, byRoot)
	require.NoError(t, err)
	return own
}

func takeFails(t *testing.T, d *Host, req api.LockRequest, want error) {
	t.Helper()
	req.NonBlock = true
	_, err := d.sessions.Take(req, byRoot)
	require.ErrorIs(t, err, want)
}

func TestOwn_Take_UntilLeave(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *Host) {
		x := api.LockRequest{Name: "x"}
		own := take(t, a, x)
		takeFails(t, a, x, api.ErrBusy)
		takeFails(t, b, x, api.ErrBusy)
		again := take(t, a, api.LockRequest{Name: "x", Session: own.ID, Token: own.Token()})
		require.Equal(t, own.Token(), again.Token(), "the same hold")
		own.Leave()
		takeFails(t, b, x, api.ErrBusy)
		again.Leave()
		shared := take(t, b, api.LockRequest{Name: "x", Mode: layout.Shared})
		take(t, a, api.LockRequest{Name: "x", Mode: layout.Shared}).Leave()
		require.NoError(t, shared.SetMode(t.Context(), layout.Exclusive))
		takeFails(t, a, x, api.ErrBusy)
		shared.Leave()
		takeFails(t, a, api.LockRequest{Name: "x", Session: own.ID, Token: own.Token()}, api.ErrLost)
		_, err := a.sessions.Take(x, session.Client{May: func(string) error { return api.ErrForbidden }})
		require.ErrorIs(t, err, api.ErrForbidden)
		take(t, a, x).Leave()
	})
}

// TestOwn_AfterARestart_IsContinuedOrLeft: a client that does not return has its hold for as long as its lease; a hold
// of bakeryd itself that is not continued is released immediately.
func TestOwn_AfterARestart_IsContinuedOrLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		m, other := c.mortal(1), c.host(2)
		request := func(name string) api.LockRequest { return api.LockRequest{Name: name, Command: "own " + name} }
		kept, left := take(t, m.d, request("kept")), take(t, m.d, request("left"))
		foreign := take(t, m.d, api.LockRequest{Name: "foreign", Command: "another"})
		m.restart()
		again := take(t, m.d, api.LockRequest{Name: "kept", Session: kept.ID, Token: kept.Token()})
		m.d.sessions.LeaveOwn(func(id, command string) bool { return id != kept.ID && command == "own left" })
		eventually(t, "it is free", func() bool {
			own, err := other.sessions.Take(api.LockRequest{Name: "left", NonBlock: true}, byRoot)
			if err == nil {
				own.Leave()
			}
			return err == nil
		})
		takeFails(t, m.d, api.LockRequest{Name: "left", Session: left.ID, Token: left.Token()}, api.ErrLost)
		takeFails(t, other, request("kept"), api.ErrBusy)
		takeFails(t, other, request("foreign"), api.ErrBusy)
		again.Leave()
		take(t, m.d, api.LockRequest{Name: "foreign", Session: foreign.ID, Token: foreign.Token()}).Leave()
		take(t, other, request("kept")).Leave()
		take(t, other, request("foreign")).Leave()
	})
}
