package daemon

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
)

// directory returns the entries on the disk.
func (c *cluster) directory() (entries []layout.Entry) {
	c.t.Helper()
	for lock := 1; lock <= c.Geo.Locks; lock++ {
		entries = append(entries, c.Entry(lock))
	}
	return entries
}

// named counts the entries with a name.
func (c *cluster) named(name string) (n int) {
	c.t.Helper()
	for _, e := range c.directory() {
		if e.Name == name {
			n++
		}
	}
	return n
}

func TestCallsForLocks(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		s := serveSocket(t, c.host(1))
		for _, test := range []struct {
			call, body string
			status     int
			answer     string
		}{
			{"POST /v1/create", `{"name": "reboot", "permits": 2}`, 200, `"created": true`},
			{"POST /v1/create", `{"name": "reboot", "permits": 2}`, 200, `"created": false`},
			{"POST /v1/create", `{"name": "reboot"}`, 409, `"code":"permits"`},
			{"POST /v1/create", `{"name": "reboot", "permits": 9}`, 400, `"code":"invalid"`},
			{"POST /v1/create", `{"name": "a"}`, 200, `"permits": 1`},
			{"POST /v1/create", `{"name": "", "x": 1}`, 400, `"code":"invalid"`},
			{"GET /v1/locks", ``, 200, `"name": "a"`},
			{"POST /v1/remove", `{"name": "a", "timeout_ms": -1}`, 400, `"code":"invalid"`},
			{"POST /v1/remove", `{"name": "a"}`, 200, `"name": "a"`},
			{"POST /v1/remove", `{"name": "a"}`, 404, `"code":"missing"`},
			{"POST /v1/remove", `{"name": "x"}`, 404, `bakeryctl locks`},
		} {
			status, answer := s.call(test.call, test.body)
			require.Equal(t, test.status, status, "%s %s: %s", test.call, test.body, answer)
			require.Contains(t, answer, test.answer)
		}
		h := acquire(t, s.d, locks.Request{Name: "held"})
		status, answer := s.call("POST /v1/remove", `{"name": "held", "nonblock": true}`)
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, answer, `"code":"busy"`)
		require.Contains(t, answer, `"hint":"bakeryctl status shows the holder"`)
		status, answer = s.call("POST /v1/remove", `{"name": "held", "timeout_ms": 20}`)
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, answer, `"code":"timeout"`)
		require.Contains(t, answer, `"hint":"bakeryctl status shows the holder"`)
		require.NoError(t, h.Release())
		list, err := s.d.Locks(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Locks, 2)
		require.Equal(t, []string{"held", "reboot"}, []string{list.Locks[0].Name, list.Locks[1].Name})
		c.Spoil(c.Geo.Entry(4))
		list, err = directory.List(c.Disk.Open())
		require.NoError(t, err)
		require.Len(t, list.Locks, 2)
		require.True(t, strings.HasPrefix(list.Damaged, "directory entry of lock 4"), list.Damaged)
	})
}
