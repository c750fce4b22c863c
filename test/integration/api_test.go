//go:build integration

package integration

import (
	"encoding/json"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func (h *host) curl(args ...string) result {
	h.t.Helper()
	return execute(h.t, append([]string{"curl", "-sS", "--unix-socket", h.socket}, args...)...)
}

// TestCurl: a lock is held while the client's connection is open.
func TestCurl(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	a, b := s.host(1), s.host(2)
	type line struct {
		Event, Name, Mode, Code, Message, Token string
		HostID                                  int `json:"host"`
		LeaseMS                                 int `json:"lease_ms"`
		Ahead                                   int
	}
	decode := func(text string) (l line) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(text), &l), text)
		return l
	}
	start := func(h *host, body string) *process {
		return launch(t, h.dir, "curl", "-sN", "--unix-socket", h.socket, "http://bakery/v1/lock", "-d", body)
	}
	holder := start(a, `{"name": "deploy"}`)
	l := decode(holder.line())
	require.Equal(t, "granted", l.Event)
	require.Equal(t, "deploy", l.Name)
	require.Equal(t, "exclusive", l.Mode)
	require.Equal(t, 1, l.HostID)
	require.Positive(t, l.LeaseMS)
	require.LessOrEqual(t, l.LeaseMS, int(lease.Milliseconds()))
	requireGrowing(t, []string{l.Token})
	require.Equal(t, "renewed", decode(holder.line()).Event)
	require.Equal(t, 1, b.lock("-n", "deploy", "--", "true").code)
	pid := 0
	for _, h := range a.report("deploy").Holders {
		pid = h.PID
	}
	require.Equal(t, holder.cmd.Process.Pid, pid, "the peer's pid, because the request has none")

	waiter := start(b, `{"name": "deploy", "timeout_ms": 3000}`)
	l = decode(waiter.line())
	require.Equal(t, "waiting", l.Event)
	require.Equal(t, 1, l.Ahead)
	waiter.exits(0)
	l = decode(waiter.line())
	require.Equal(t, "refused timeout", l.Event+" "+l.Code)

	reader := start(b, `{"name": "deploy", "mode": "shared"}`)
	require.Equal(t, "waiting", decode(reader.line()).Event)
	holder.signal(syscall.SIGKILL)
	require.Equal(t, "granted", decode(reader.line()).Event)
	require.Zero(t, a.lock("-n", "-s", "deploy", "--", "true").code)
	b.signal(syscall.SIGINT)
	for l = decode(reader.line()); l.Event == "renewed"; l = decode(reader.line()) {
	}
	require.Equal(t, "lost", l.Event)
	reader.signal(syscall.SIGTERM)
	b.exits(0)
}
