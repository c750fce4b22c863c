package daemon

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

func valueOf(t *testing.T, d *Host) locks.Value {
	t.Helper()
	v, err := d.Value(t.Context(), "x")
	require.NoError(t, err)
	return v
}

// TestValueSurvivesARestart: and the holder may set another one.
func TestValueSurvivesARestart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, token := m.ask(1, "").granted()
		status, answer := m.change("/v1/value", holder.call(token, `"value": "dmFsdWU="`))
		require.Equal(t, http.StatusOK, status, "%v", answer)
		m.restart()
		holder.again(m, token.String()).granted()
		require.Equal(t, "value", string(valueOf(t, m.d).Value))
		status, answer = m.change("/v1/value", holder.call(token, `"value": ""`))
		require.Equal(t, http.StatusOK, status, "%v", answer)
		require.Nil(t, valueOf(t, m.d).Value)
		holder.leave()
	})
}

func TestAPIValue(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	holder, token := m.ask(1, "").granted()
	cl := client.New(m.path)
	v, err := cl.Value(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, client.Value{}, v)
	text := strings.Repeat("\xff", layout.MaxValue)
	status, answer := m.change("/v1/value", holder.call(token, fmt.Sprintf(`"value": %q`, base64.StdEncoding.EncodeToString([]byte(text)))))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"name": "x", "token": token.String()}, answer)
	v, err = cl.Value(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, client.Value{Value: []byte(text), Token: client.Token(token), Host: 1, HostName: "db1"}, v)
	for _, bad := range []string{
		`{}`, holder.call(token, `"valeu": ""`), holder.call(token, `"value": "no base64!"`), holder.call(0, `"value": ""`),
		fmt.Sprintf(`{"session": %q, "token": %q}`, holder.id, token),
		holder.call(token, fmt.Sprintf(`"value": %q`, base64.StdEncoding.EncodeToString([]byte(text+"x")))),
	} {
		status, answer = m.change("/v1/value", bad)
		require.Equal(t, http.StatusBadRequest, status, "%s: %v", bad, answer)
		require.Equal(t, "invalid", answer["code"])
	}
	status, _ = m.change("/v1/value", holder.call(token.Grant(9), `"value": ""`))
	require.Equal(t, http.StatusGone, status)
	_, err = cl.Value(t.Context(), "y")
	require.ErrorIs(t, err, client.ErrNoLock)
	_, err = cl.Value(t.Context(), "")
	var refusal *client.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, api.CodeInvalid, refusal.Code)
	v, err = cl.Value(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, text, string(v.Value))
	holder.leave()
}

// TestClientChangesItsHold: the Go client and bakeryd agree, also after a restart.
func TestClientChangesItsHold(t *testing.T) {
	c := realCluster(t, 8, 4)
	d := c.host(1)
	s := serveSocket(t, d)
	cl := client.New(s.path)
	h, err := cl.Lock(t.Context(), "x", client.Options{Mode: client.Shared})
	require.NoError(t, err)
	second, err := cl.Lock(t.Context(), "x", client.Options{Mode: client.Shared})
	require.NoError(t, err)
	require.ErrorIs(t, h.SetMode(t.Context(), client.Exclusive), client.ErrUpgrade)
	// if this process stalls, it may not get the answer to the release
	_ = second.Unlock()
	eventually(t, "an upgrade", func() bool { return h.SetMode(t.Context(), client.Exclusive) == nil })
	require.Equal(t, client.Exclusive, h.Mode())
	require.NoError(t, h.SetValue(t.Context(), []byte("v")))
	access := cl.Access(h.Session(), h.Token())
	require.NoError(t, access.SetMode(t.Context(), client.Shared))
	eventually(t, "the holder hears of it", func() bool { return h.Mode() == client.Shared })
	require.Error(t, access.SetValue(t.Context(), nil))
	v, err := cl.Value(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, "v", string(v.Value))
	require.NoError(t, h.Err())
	_ = h.Unlock()
	eventually(t, "it is over", func() bool { return access.SetMode(t.Context(), client.Shared) != nil })
	require.ErrorIs(t, access.SetMode(t.Context(), client.Shared), client.ErrLost)
}

func TestAPI_Blocker_NamesTheHolder(t *testing.T) {
	m := realCluster(t, 8, 4).mortal(1)
	holder, _ := m.ask(1, "").granted()
	var answer map[string]string
	require.NoError(t, client.New(m.path).Call(t.Context(), "GET", "/v1/blocker?name=x", nil, &answer))
	require.Equal(t, "x", answer["name"])
	require.Regexp(t, `^held by db1 \(host 1\)(, pid \d+)?( ".*")?, for \d+ s$`, answer["text"])
	require.NoError(t, client.New(m.path).Call(t.Context(), "GET", "/v1/blocker?name=y", nil, &answer))
	require.Equal(t, map[string]string{"name": "y", "text": ""}, answer, "bakeryd does not know the lock")
	holder.leave()
}
