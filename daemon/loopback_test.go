package daemon

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/server"
)

// TestLoopbackOnly: bakeryd listens on no address that other machines reach.
func TestLoopbackOnly(t *testing.T) {
	for address, hint := range map[string]string{
		"127.0.0.1:0":       "",
		"127.9.8.7:9415":    "",
		"[::1]:0":           "",
		"localhost:9415":    "",
		"0.0.0.0:9415":      "reverse proxy",
		":9415":             "reverse proxy",
		"[::]:9415":         "reverse proxy",
		"192.0.2.1:80":      "reverse proxy",
		"db1:9415":          "reverse proxy",
		"localhost.evil:80": "reverse proxy",
		"127.1:80":          "reverse proxy",
		"127.0.0.1":         "want ADDRESS:PORT, as 127.0.0.1:9415",
		"127.0.0.1:":        "want ADDRESS:PORT",
		"9415":              "want ADDRESS:PORT",
		"":                  "want ADDRESS:PORT",
	} {
		err := server.CheckLoopback(address)
		if hint == "" {
			require.NoError(t, err, address)
			continue
		}
		require.ErrorIs(t, err, server.ErrNotLoopback, address)
		require.ErrorContains(t, err, hint)
		require.ErrorContains(t, err, `"`+address+`"`)
		_, err = server.ListenLoopback(address)
		require.ErrorIs(t, err, server.ErrNotLoopback)
	}
	for _, address := range []string{"127.0.0.1:65536", "127.0.0.1:-1", "[::1]:http", "localhost: 80"} {
		require.EqualError(t, server.CheckLoopback(address), strconv.Quote(address)+": want a port from 0 to 65535")
	}
	ln, err := server.ListenLoopback("localhost:0")
	require.NoError(t, err)
	defer ln.Close()
	require.True(t, ln.Addr().(*net.TCPAddr).IP.IsLoopback())
	_, err = server.ListenLoopback(ln.Addr().String())
	require.ErrorContains(t, err, "address already in use")
}

// TestAnAddressIsForLookingOnly: clients of an address cannot change anything. Browsers cannot even
// read if they came by a name that is not this machine's.
func TestAnAddressIsForLookingOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newCluster(t, 8, 4).host(1)
		s := serveSocket(t, d)
		ln, err := server.ListenLoopback("127.0.0.1:0")
		require.NoError(t, err)
		serving(t, s.srv, s.srv.ServeLooks, ln)
		address := ln.Addr().String()
		for _, test := range []struct {
			method, path, host, body string
			header                   []string
			status                   int
			says                     string
		}{
			{"GET", "/", address, "", nil, 200, "/page/page.js"},
			{"HEAD", "/", address, "", nil, 200, ""},
			{"GET", "/v1/status", address, "", nil, 200, `"this_host"`},
			{"GET", "/v1/locks", "localhost:9415", "", nil, 200, `"locks"`},
			{"GET", "/page/status", "localhost", "", []string{"Sec-Fetch-Site", "same-origin"}, 200, `"report"`},
			{"POST", "/v1/lock", address, `{"name":"x"}`, nil, 403, "this address is read-only: it does not serve POST /v1/lock"},
			{"POST", "/v1/create", address, `{"name":"x"}`, nil, 403, "use the Unix socket"},
			{"POST", "/v1/remove", address, `{"name":"x"}`, nil, 403, "forbidden"},
			{"POST", "/v1/evict", address, `{"host":1}`, nil, 403, "forbidden"},
			{"POST", "/v1/value", address, `{}`, nil, 403, "forbidden"},
			{"PUT", "/", address, "", nil, 403, "forbidden"},
			{"GET", "/v1/value?name=x", address, "", nil, 404, "no such call"},
			{"GET", "/v1/blocker?name=x", address, "", nil, 404, "no such call"},
			{"GET", "/v1/link", address, "", []string{"Upgrade", "bakery-link/1"}, 404, "no such call"},
			{"GET", "/metrics", address, "", nil, 404, "no such call"},                // this server has none
			{"GET", "/v1/status", "intranet:9415", "", nil, 403, "unknown host name"}, // some name in the network
			{"GET", "/v1/status", "LOCALHOST.:9415", "", nil, 200, `"this_host"`},
			{"GET", "/v1/status", address, "{}", nil, 400, "a GET with a body"},
			{"GET", "/v1/status", "evil.example:9415", "", nil, 403, "unknown host name"},
			{"GET", "/v1/status", "evil.example", "", []string{"Origin", "http://evil.example"}, 403, "unknown host name"},
			{"POST", "/v1/create", address, `{"name":"x"}`, []string{"Origin", "http://evil.example"}, 403, "a browser may only read"},
		} {
			r, err := http.NewRequest(test.method, "http://"+address+test.path, strings.NewReader(test.body))
			require.NoError(t, err)
			r.Host = test.host
			if test.header != nil {
				r.Header.Set(test.header[0], test.header[1])
			}
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, test.status, resp.StatusCode, "%+v: %s", test, body)
			require.True(t, bytes.Contains(body, []byte(test.says)), "%+v: %s", test, body)
		}
		report, err := d.Status()
		require.NoError(t, err)
		require.Empty(t, report.Locks, "nothing was made")
	})
}

// TestFollowers_ByAnAddress_LeaveRoomForTheStatusPage: half of the connections are for other
// requests.
func TestFollowers_ByAnAddress_LeaveRoomForTheStatusPage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		journal := events.New(clock.Boottime, slog.New(slog.DiscardHandler))
		s := serveSocket(t, newCluster(t, 8, 4).host(1), func(c *server.Config) { c.Events = journal })
		t.Cleanup(journal.Close)
		ln, err := server.ListenLoopback("127.0.0.1:0")
		require.NoError(t, err)
		serving(t, s.srv, s.srv.ServeLooks, ln)
		t.Cleanup(http.DefaultClient.CloseIdleConnections) // before that
		get := func(path string) (status int) {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+ln.Addr().String()+path, nil)
			require.NoError(t, err)
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			t.Cleanup(func() { _ = resp.Body.Close() })
			return resp.StatusCode
		}
		for n := range 100 {
			want := http.StatusOK
			if n >= fdlimit.MaxReaders/2 {
				want = http.StatusServiceUnavailable
			}
			require.Equal(t, want, get("/v1/events?follow=1"), "follower %d", n)
		}
		require.Equal(t, http.StatusOK, get("/v1/status"))
	})
}

// TestBodiesThatNeverCome: a request that announces a body is answered immediately, and does not
// block the metrics.
func TestBodiesThatNeverCome(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	ln, err := server.ListenLoopback("127.0.0.1:0")
	require.NoError(t, err)
	serving(t, s.srv, s.srv.ServeLooks, ln)
	for _, of := range []struct{ network, address string }{{"tcp", ln.Addr().String()}, {"unix", s.path}} {
		c, err := net.Dial(of.network, of.address)
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(generous)))
		_, err = io.WriteString(c, "GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
		require.NoError(t, err)
		answer, err := io.ReadAll(c) // to its end
		require.NoError(t, err)
		require.Contains(t, string(answer), "a GET with a body")
		require.NoError(t, c.Close())
	}
}
