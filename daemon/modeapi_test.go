package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// change makes an API call about a hold, and returns the status and the answer.
func (s *served) change(path, body string) (int, map[string]any) {
	s.t.Helper()
	status, text := s.call("POST "+path, body)
	var answer map[string]any
	require.NoError(s.t, json.Unmarshal([]byte(text), &answer), text)
	if e, ok := answer["error"].(map[string]any); ok {
		return status, e
	}
	return status, answer
}

func (s *testSession) call(token layout.Ticket, rest string) string {
	return fmt.Sprintf(`{"session": %q, "token": %q, %s}`, s.id, token, rest)
}

func TestAPIMode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		first, token := m.ask(1, `, "mode": "shared"`).granted()
		status, answer := m.change("/v1/mode", first.call(token, `"mode": "exclusive"`))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, map[string]any{"mode": "exclusive", "token": token.String(), "change": 1.0}, answer)
		require.Equal(t, layout.Exclusive, first.until("mode").Mode)
		status, _ = m.change("/v1/mode", first.call(token, `"mode": "shared"`))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, layout.Shared, first.until("mode").Mode)

		second, _ := m.ask(2, `, "mode": "shared"`).granted()
		status, answer = m.change("/v1/mode", first.call(token, `"mode": "exclusive"`))
		require.Equal(t, http.StatusConflict, status)
		require.Equal(t, "upgrade", answer["code"])
		require.Contains(t, answer["message"], "1 other clients of this host")
		require.Contains(t, answer["hint"], "try again")
		second.leave()
		for _, bad := range []string{
			`{}`, `not json`, first.call(token, `"mode": "upside down"`), first.call(token, `"name": "x"`), first.call(0, `"mode": "shared"`),
			fmt.Sprintf(`{"session": %q, "token": %q}`, first.id, token), `{"session": "x", "token": "256", "mode": "shared"}`,
		} {
			status, answer = m.change("/v1/mode", bad)
			require.Equal(t, http.StatusBadRequest, status, bad)
			require.Equal(t, "invalid", answer["code"], bad)
		}
		status, answer = m.change("/v1/mode", first.call(token.Grant(9), `"mode": "shared"`))
		require.Equal(t, http.StatusGone, status)
		require.Equal(t, "lost", answer["code"])
		first.leave()
		eventually(t, "it is released", func() bool {
			status, _ = m.change("/v1/mode", first.call(token, `"mode": "shared"`))
			return status == http.StatusGone
		})
	})
}

func TestModeOfAnotherUsersHold(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: to be two users takes root")
	}
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	holder, token := m.ask(1, "").granted()
	conn := dialAs(t, 65534, m.path)
	body := holder.call(token, `"mode": "shared"`)
	_, err := fmt.Fprintf(conn, "POST /v1/mode HTTP/1.1\r\nHost: bakery\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	await(t, conn, "another user's")
	require.Equal(t, layout.Exclusive, holdOf(m.session(holder)).Mode())
	holder.leave()
}

// TestRestartKeepsTheMode: and a client that was not notified of it yet is.
func TestRestartKeepsTheMode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		other := c.host(2)
		holder := m.ask(1, "") // exclusive
		token := holder.until("granted").Token
		change := func(mode string) {
			status, answer := m.change("/v1/mode", holder.call(token, fmt.Sprintf(`"mode": %q`, mode)))
			require.Equal(t, http.StatusOK, status, "%v", answer)
		}
		change("shared")
		m.restart()
		holder.again(m, token.String()) // with the mode of the request
		require.Equal(t, layout.Shared, holder.until("granted").Mode)
		require.NoError(t, acquire(t, other, locks.Request{Name: "x", Mode: layout.Shared, Try: true}).Release())
		eventually(t, "an upgrade", func() bool {
			status, _ := m.change("/v1/mode", holder.call(token, `"mode": "exclusive"`))
			return status == http.StatusOK
		})
		m.restart()
		holder.extra = `, "mode": "shared"`
		holder.again(m, token.String())
		require.Equal(t, layout.Exclusive, holder.until("granted").Mode)
		acquireFails(t, other, locks.Request{Name: "x", Mode: layout.Shared, Try: true}, api.ErrBusy)
		change("shared")
		holder.leave()
	})
}

// TestRestartInTheMidstOfAnUpgrade: the disk shows an exclusive hold, which is none: a reader is
// inside.
func TestRestartInTheMidstOfAnUpgrade(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		beside := acquire(t, c.host(2), reader)
		holder, token := m.ask(1, `, "mode": "shared"`).granted()
		h := holdOf(m.session(holder))
		eventually(t, "it is shown", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		m.disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 8), Crash: true})
		asked := make(chan error, 1)
		go func() { asked <- h.SetMode(context.Background(), layout.Exclusive) }()
		eventually(t, "the claim", func() bool { return c.Slot(1, 1).Mode == layout.Exclusive })
		m.restart()
		eventually(t, "it is shared again", func() bool {
			s := c.Slot(1, 1)
			return s.Mode == layout.Shared && s.Phase == layout.Held && s.Ticket == token
		})
		holder.again(m, token.String())
		require.Equal(t, layout.Shared, holder.until("granted").Mode)
		status, answer := m.change("/v1/mode", holder.call(token, `"mode": "exclusive"`))
		require.Equal(t, http.StatusConflict, status, "%v", answer)
		require.NoError(t, beside.Release())
		eventually(t, "an upgrade", func() bool {
			status, _ := m.change("/v1/mode", holder.call(token, `"mode": "exclusive"`))
			return status == http.StatusOK
		})
		holder.leave()
		require.ErrorIs(t, <-asked, api.ErrLeaseLost)
	})
}

// TestRestartInTheMidstOfADowngrade: the next process completes it.
func TestRestartInTheMidstOfADowngrade(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		other := c.host(2)
		holder, token := m.ask(1, "").granted()
		h := holdOf(m.session(holder))
		eventually(t, "it is shown", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		crash := m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Crash: true})
		asked := make(chan error, 1)
		go func() { asked <- h.SetMode(context.Background(), layout.Shared) }()
		<-crash.Hit()
		m.kill()
		require.Equal(t, layout.Exclusive, c.Slot(1, 1).Mode)
		m.rise()
		require.NoError(t, acquire(t, other, reader).Release())
		holder.again(m, token.String())
		require.Equal(t, layout.Shared, holder.until("granted").Mode)
		holder.leave()
		require.ErrorIs(t, <-asked, api.ErrLeaseLost)
	})
}

// holdOf returns the hold of a session that has one.
func holdOf(s *session.Session) *locks.Hold {
	h, _ := s.Outcome()
	return h
}
