package daemon

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

func asks(t *testing.T, d *Host, name, message string) []locks.Asked {
	t.Helper()
	asked, err := d.Request(t.Context(), name, message)
	require.NoError(t, err)
	return asked
}

func TestAPIRequest(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		s, b := serveSocket(t, c.host(1)), serveSocket(t, c.host(2))
		conn, r := s.post(`{"name": "x", "requests": true}`)
		e := nextEvent(t, r)
		require.Equal(t, "granted", e.Kind)
		code, text := b.call("POST /v1/request", `{"name": "x", "message": "please"}`)
		require.Equal(t, http.StatusOK, code)
		require.JSONEq(t, fmt.Sprintf(`{"asked": [{"host": 1, "host_name": "db1", "token": "%v"}]}`, e.Token), text)
		for e = nextEvent(t, r); e.Kind == "renewed"; e = nextEvent(t, r) {
		}
		require.Equal(t, api.Event{Kind: api.Requested, Host: 2, HostName: "db2", Message: "please"}, e)
		require.NoError(t, conn.Close())
		require.Eventually(t, func() bool {
			code, text = b.call("POST /v1/request", `{"name": "x"}`)
			return code != http.StatusOK
		}, generous, time.Millisecond)
		require.Equal(t, http.StatusConflict, code)
		require.Contains(t, text, `"code":"free"`)
		code, text = b.call("POST /v1/request", `{"name": "y"}`)
		require.Equal(t, http.StatusNotFound, code)
		require.Contains(t, text, `"code":"missing"`)
		for _, body := range []string{`{}`, `{"name": "x", "require_massage": ""}`, `{"name": "x", "message": "a\u0007"}`, ``} {
			code, text = b.call("POST /v1/request", body)
			require.Equal(t, http.StatusBadRequest, code, body)
			require.Contains(t, text, `"code":"invalid"`)
		}
	})
}

// TestRequestAcrossARestart: it reaches a holder whose bakeryd did not run, once the client has
// reconnected. A request that was received before may be received again.
func TestRequestAcrossARestart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, b := c.mortal(1), c.host(2)
		s, token := m.ask(1, `, "requests": true`).granted()
		require.Eventually(t, func() bool { return c.Slot(1, 1).Phase == layout.Held }, generous, time.Millisecond)
		m.kill()
		require.Len(t, asks(t, b, "x", "meanwhile"), 1)
		m.rise()
		s.again(m, token.String())
		require.Equal(t, api.Event{Kind: api.Requested, Host: 2, HostName: "db2", Message: "meanwhile"}, s.until("requested"))
		s.leave()
	})
}

// TestNobodyListens: a client that does not listen receives no requests, and its host does not read
// them.
func TestNobodyListens(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		s, b := serveSocket(t, c.host(1)), c.host(2)
		conn, r := s.post(`{"name": "x"}`)
		require.Equal(t, "granted", nextEvent(t, r).Kind)
		asks(t, b, "x", "")
		for renewed := 0; renewed < 3; renewed++ {
			require.Equal(t, "renewed", nextEvent(t, r).Kind)
		}
		held, _ := s.d.sessions.Holding()
		require.False(t, held[0].Listening())
		require.NoError(t, conn.Close())
	})
}
