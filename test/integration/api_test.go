//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

func (h *host) curl(args ...string) result {
	h.t.Helper()
	return execute(h.t, append([]string{"curl", "-sS", "--unix-socket", h.socket}, args...)...)
}

// TestCurl: a lock is held as long as the connection of whoever asked for it is open.
func TestCurl(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	a, b := s.host(1), s.host(2)
	type line struct {
		Event, Name, Mode, Code, Message, Token string
		HostID                                  int `json:"host_id"`
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
	require.Equal(t, holder.cmd.Process.Pid, pid, "that of the peer, for none was given")

	waiter := start(b, `{"name": "deploy", "timeout_ms": 300}`)
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

func TestErrorsAreJSON(t *testing.T) {
	t.Parallel()
	h := newSpace(t, 512, "--locks", "1").host(1)
	require.Zero(t, h.lock("x", "--", "true").code)
	lock := []string{"http://bakery/v1/lock", "-d"}
	for _, x := range []struct {
		args   []string
		status int
		code   string
	}{
		{append(lock, `{"name": ""}`), 400, "invalid"},
		{append(lock, `{"name": "a\nb"}`), 400, "invalid"},
		{append(lock, `{"name": "x", "mode": "upside down"}`), 400, "invalid"},
		{append(lock, `{"name": "x", "timeout_ms": -1}`), 400, "invalid"},
		{append(lock, `{"name": "x", "timeout_ms": 1e30}`), 400, "invalid"},
		{append(lock, `{"name": "x", "permits": 99}`), 400, "invalid"},
		{append(lock, `{"name": "x", "pid": -1}`), 400, "invalid"},
		{append(lock, `{"name": "x", "colour": "red"}`), 400, "invalid"},
		{append(lock, `{"name": "x"} {}`), 400, "invalid"},
		{append(lock, `not JSON`), 400, "invalid"},
		{append(lock, `"`+strings.Repeat("x", 20<<10)+`"`), 400, "invalid"},
		{append(lock, `{"name": "x", "permits": 2}`), 409, "permits"},
		{append(lock, `{"name": "y"}`), 507, "full"},
		{[]string{"http://bakery/v1/lock"}, 404, "invalid"},
		{[]string{"http://bakery/v2"}, 404, "invalid"},
		{[]string{"-X", "DELETE", "http://bakery/v1/status"}, 404, "invalid"},
	} {
		r := h.curl(append([]string{"-w", "\n%{http_code} %{content_type}"}, x.args...)...)
		require.Zero(t, r.code, r.stderr)
		body, rest, _ := strings.Cut(strings.TrimSpace(r.stdout), "\n")
		rest = strings.TrimSpace(rest)
		require.Equal(t, fmt.Sprintf("%d application/json", x.status), rest, "%.100q: %s", x.args, body)
		var said struct{ Error client.Error }
		require.NoError(t, json.Unmarshal([]byte(body), &said), body)
		require.Equal(t, x.code, said.Error.Code)
		require.NotEmpty(t, said.Error.Message)
	}
	require.Zero(t, h.lock("-n", "x", "--", "true").code)
	r := h.curl("http://bakery/v1/status")
	require.True(t, json.Valid([]byte(r.stdout)))
}

// TestPermits: so many hosts at once, and no more.
func TestPermits(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector, leased(10*time.Second))
		hosts := s.hosts(4)
		var mu sync.Mutex
		var inside, most int
		var all sync.WaitGroup
		for i, h := range hosts {
			for range 2 {
				all.Go(func() {
					for range 15 {
						hold, err := h.client().Lock(t.Context(), "reboot", client.Options{Permits: 2})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						inside++
						most = max(most, inside)
						mu.Unlock()
						for range 1000 * i {
							_ = fmt.Sprint(i) // for a while
						}
						mu.Lock()
						inside--
						mu.Unlock()
						if err := hold.Unlock(); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		require.LessOrEqual(t, most, 2)
		first, err := hosts[0].client().Lock(t.Context(), "reboot", client.Options{})
		require.NoError(t, err)
		second, err := hosts[1].client().Lock(t.Context(), "reboot", client.Options{})
		require.NoError(t, err)
		_, err = hosts[2].client().Lock(t.Context(), "reboot", client.Options{NonBlock: true})
		require.ErrorIs(t, err, client.ErrBusy)
		_, err = hosts[2].client().Lock(t.Context(), "reboot", client.Options{NonBlock: true, Mode: layout.Shared})
		require.ErrorIs(t, err, client.ErrBusy)
		require.NoError(t, first.Unlock())
		require.NoError(t, second.Unlock())
	})
}
