package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// fuzzedDaemon is a host on a disk in memory with a lease that outlasts the fuzzing.
func fuzzedDaemon(f *testing.F) (*Host, *server.Server) {
	g := layout.Geometry{Stride: 512, Hosts: 4, Locks: 16}
	sb := layout.Superblock{UUID: layout.UUID{1, 2, 3}, Geometry: g, Lease: layout.MaxLease, Formatted: time.Now().UTC().Truncate(time.Microsecond)}
	disk := disktest.NewMemory(max(g.Size(), layout.HeadSize), 512, 512)
	dev := disk.Open()
	buf := blockdev.Alloc(512)
	for copy := range 2 {
		require.NoError(f, sb.Encode(buf, copy))
		require.NoError(f, dev.Write(buf, g.Superblock(copy)))
	}
	dir := f.TempDir()
	log := slog.New(slog.DiscardHandler)
	journal := events.New(clock.Boottime, log)
	f.Cleanup(journal.Close)
	d, err := Join(f.Context(), Config{Devices: []string{"memory"}, HostID: 1, Name: "db1", RuntimeDir: dir, StateDir: dir, Logger: log, Keep: true, Events: journal,
		Open: func() (blockdev.Device, error) {
			return disk.Open(), nil
		}})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, d.Close(context.Background())) })
	for _, name := range []string{"held", "free"} {
		_, _, err := d.Create(f.Context(), name, 1)
		require.NoError(f, err)
	}
	h, err := d.Acquire(f.Context(), locks.Request{Name: "held"})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, h.Release()) })
	return d, checked(server.New(server.Config{Host: alone(d), Log: log, Events: journal}))
}

// unixPair returns the two ends of a connection.
func unixPair(t testing.TB) (a, b *net.UnixConn) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer ln.Close()
	client, err := net.Dial("unix", path)
	require.NoError(t, err)
	server, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { client.Close(); server.Close() })
	return server.(*net.UnixConn), client.(*net.UnixConn)
}

var apiCalls = []string{"POST /v1/lock", "GET /v1/link", "POST /v1/create", "POST /v1/remove", "GET /v1/locks", "GET /v1/status", "POST /v1/request",
	"POST /v1/mode", "POST /v1/value", "GET /v1/value", "POST /v1/evict", "POST /v1/meet", "POST /v1/floor", "GET /v1/events", "GET /v1/blocker"}

// FuzzAPI: every call of the API with any body and query. No request makes bakeryd fail. It is
// served, or refused with a code and a reason, in JSON and text without control characters. A hold
// of another client is never changed. When the client is gone, nothing of it is left.
func FuzzAPI(f *testing.F) { // 8000x
	d, srv := fuzzedDaemon(f)
	conn, _ := unixPair(f)
	session := strings.Repeat("0a", 16)
	for call, bodies := range map[int][]string{
		0: {`{"name":"free"}`, `{"name":"held","nonblock":true}`, `{"name":"held","timeout_ms":1,"witness":true,"requests":true}`, `{"name":"x","permits":2000}`,
			`{"name":"free","session":"` + session + `","pid":-1}`, `{"name":"free","session":"` + session + `","token":"3676650270761156864"}`, `{"name":"\u001b[2J"}`,
			`{"name":"free","timeout_ms":9223372036854775807}`, `{"name":"free","timeout_ms":-1}`, `[`, `{}{}`},
		2:  {`{"name":"made","permits":3}`, `{"name":"made","permits":-1}`, `{"name":""}`},
		3:  {`{"name":"made"}`, `{"name":"held","nonblock":true}`, `{"name":"held","timeout_ms":1}`},
		6:  {`{"name":"held","message":"please"}`, `{"name":"free","message":""}`},
		7:  {`{"session":"` + session + `","token":"3676650270761156864","mode":"shared"}`},
		8:  {`{"session":"` + session + `","token":"3676650270761156864","value":"AAAA"}`},
		10: {`{"host":2,"incarnation":"0000000000000005","forget":true}`, `{"host":1,"incarnation":"5"}`, `{"host":2000}`},
		11: {`{"host":2,"rounds":1,"timeout_ms":1}`, `{"host":1,"rounds":1000001,"timeout_ms":-1}`},
		12: {`{"name":"free","rounds":2}`, `{"name":"free","rounds":1001}`},
	} {
		for _, body := range bodies {
			f.Add(uint8(call), "", []byte(body))
		}
	}
	for _, query := range []string{"name=held", "name=", "since=1&limit=3", "limit=10001", "from=2026-11-21T03:12:00Z&until=x", "follow=1", "%zz", "since=18446744073709551615", "G%13"} {
		f.Add(uint8(9), query, []byte(nil))
		f.Add(uint8(13), query, []byte(nil))
		f.Add(uint8(14), query, []byte(nil))
	}
	f.Add(uint8(4), "", []byte(nil))
	f.Add(uint8(5), "x=y", []byte(nil))
	incarnation := d.mem.Incarnation()
	f.Fuzz(func(t *testing.T, call uint8, query string, body []byte) {
		method, path, _ := strings.Cut(apiCalls[int(call)%len(apiCalls)], " ")
		if strings.Contains(string(body), `"timeout_ms"`) && strings.HasSuffix(path, "meet") {
			// a request that waits takes too long
			body = bytes.ReplaceAll(body, []byte(`"timeout_ms"`), []byte(`"timeout_ms":1,"x"`))
		}
		ctx, cancel := context.WithTimeout(srv.HTTP().ConnContext(context.Background(), conn), 5*time.Millisecond)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, method, "http://bakery"+path, bytes.NewReader(body))
		r.URL.RawQuery = query
		w := httptest.NewRecorder()
		srv.HTTP().Handler.ServeHTTP(w, r)
		answer := w.Result()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		context := fmt.Sprintf("%s %s?%s %q: %d %s", method, path, query, body, answer.StatusCode, text)
		switch {
		case answer.StatusCode == http.StatusOK:
			for line := range bytes.Lines(text) {
				if answer.Header.Get("Content-Type") == "application/x-ndjson" {
					require.True(t, json.Valid(line), context)
				}
			}
			if path == "/v1/mode" || path == "/v1/value" && method == "POST" {
				require.Fail(t, "there is no such session", context)
			}
		default:
			var refusal struct{ Error api.Error }
			require.NoError(t, json.Unmarshal(text, &refusal), context)
			require.NotEmpty(t, refusal.Error.Code, context)
			require.NotEmpty(t, refusal.Error.Message, context)
			require.False(t, strings.ContainsFunc(refusal.Error.Message+refusal.Error.Hint, unicode.IsControl), context)
			if ctx.Err() == nil { // the end of ctx ends requests that wait for the disk
				require.NotEqual(t, http.StatusInternalServerError, answer.StatusCode, context)
			}
		}
		require.True(t, d.mem.Live(0), context)
		if incarnation == d.mem.Incarnation() && d.sessions.Count() != 0 {
			eventuallyFuzzed(t, "nothing of the client is left", func() bool { return d.sessions.Count() == 0 })
		}
	})
}

func eventuallyFuzzed(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for give := time.Now().Add(generous); !holds(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(give) {
			t.Fatalf("not within %v: %s", generous, what)
		}
	}
}

// FuzzStateFiles: the name of a state file identifies its owner in one way only. The record of an
// id that was left is parsed, too.
func FuzzStateFiles(f *testing.F) { // 6000x
	uuid := layout.UUID{1, 2, 3}
	f.Add(filepath.Base(handover.Path("", uuid, 12)), []byte("00000000000000ff\n"))
	f.Add(uuid.String()+"-+3.state", []byte("zz"))
	f.Add("../"+uuid.String()+"-2000.state", []byte{0})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name string, left []byte) {
		path := filepath.Join(dir, filepath.Base(name))
		if os.WriteFile(path, nil, 0o600) == nil { // otherwise it is no name of a file
			for _, host := range handover.Find(dir, uuid) {
				require.GreaterOrEqual(t, host, 1)
				require.LessOrEqual(t, host, layout.MaxHosts)
				require.Equal(t, path, handover.Path(dir, uuid, host))
			}
			require.NoError(t, os.Remove(path))
		}
		ids := hostid.Identity{UUID: uuid, Options: hostid.Options{StateDir: dir}}
		require.NoError(t, os.WriteFile(ids.LeftPath("3"), left, 0o600))
		for _, incarnation := range ids.LeftIncarnations() {
			require.Contains(t, strings.ToLower(string(left)), fmt.Sprintf("%x", incarnation))
		}
	})
}
