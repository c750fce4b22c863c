package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// operated is a fake bakeryd that reports hosts and accepts evictions.
type operated struct {
	socket  string
	evicted chan string // the bodies of the requests
	host3   chan string // the state of host 3; the last one stays
}

const silentHost3 = `"health": "silent", "incarnation": "ffffffffffffffff", "silent_ms": 21900, "dead_in_ms": 14100`

// operate returns a bakeryd that gives every eviction the same answer.
func operate(t *testing.T, status int, answer string) *operated {
	t.Helper()
	o := &operated{socket: filepath.Join(t.TempDir(), "s"), evicted: make(chan string, 10), host3: make(chan string, 10)}
	l, err := net.Listen("unix", o.socket)
	require.NoError(t, err)
	mux := http.NewServeMux()
	last := silentHost3
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		select {
		case last = <-o.host3:
		default:
		}
		fmt.Fprintf(w, `{"this_host": {"id": 1}, "hosts": [{"id": 1, "name": "db1", "health": "live"}, {"id": 3, "name": "db3", %s}]}`, last)
	})
	mux.HandleFunc("POST /v1/evict", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !json.Valid(body) {
			t.Errorf("body %q, %v", body, err)
		}
		o.evicted <- strings.TrimSpace(string(body))
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	})
	s := &http.Server{Handler: mux}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return o
}

// sent checks the eviction that bakeryd received: want, or none if it is empty.
func (o *operated) sent(t *testing.T, want string) {
	t.Helper()
	got := ""
	for len(o.evicted) > 0 {
		got += <-o.evicted
	}
	require.Equal(t, want, got)
}

const (
	evict3       = `{"host":3,"incarnation":"ffffffffffffffff","forget":false}`
	evict3Forget = `{"host":3,"incarnation":"ffffffffffffffff","forget":true}`

	cutOff = "Make sure that it is powered off or cut off from the disk: if it only hangs, it may still write."
	idText = "Its id becomes free for other machines."
)

func TestEvict_Yes_DoesNotAsk(t *testing.T) {
	for _, test := range []struct {
		name           string
		status         int
		answer         string
		args           []string
		code           int
		sent           string
		stdout, stderr string // stderr: the end of it
	}{
		{"dead", 200, `{"outcome": "dead"}`, []string{"3"}, 0, evict3, "host 3 (db3) declared dead\n", cutOff + "\n"},
		{"by name", 200, `{"outcome": "dead"}`, []string{"db3"}, 0, evict3, "host 3 (db3) declared dead\n", cutOff + "\n"},
		{"asked", 200, `{"outcome": "asked"}`, []string{"3"}, 0, evict3, "host 3 (db3) asked to leave; bakeryctl hosts shows when it has\n", cutOff + "\n"},
		{"forget", 200, `{"outcome": "dead"}`, []string{"--forget", "3"}, 0, evict3Forget,
			"host 3 (db3) declared dead, its id is free for other machines\n", idText + "\n"},
		{"changed", 400, `{"error": {"code": "invalid", "message": "evict host 3: it has changed"}}`, []string{"3"}, 64, evict3, "",
			"bakeryctl: evict host 3: it has changed\n"},
		{"refused", 503, `{"error": {"code": "unavailable", "message": "lost", "hint": "see the log"}}`, []string{"3"}, 69, evict3, "",
			"bakeryctl: lost\nhint: see the log\n"},
		{"device", 500, `{"error": {"code": "device", "message": "slow", "hint": "dmesg and the log of bakeryd show what is wrong with the device"}}`, []string{"3"}, 66, evict3, "",
			"bakeryctl: slow\nhint: dmesg and the log of bakeryd show what is wrong with the device\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := operate(t, test.status, test.answer)
			var stdout, stderr bytes.Buffer
			args := append([]string{"--socket", o.socket, "evict", "--yes"}, test.args...)
			code := run(t.Context(), args, &app{stdout: &stdout, stderr: &stderr})
			require.Equal(t, test.code, code)
			require.Equal(t, test.stdout, stdout.String())
			if got := stderr.String(); !strings.HasPrefix(got, "host 3 (db3)\n  state        silent\n") || !strings.HasSuffix(got, test.stderr) {
				t.Errorf("standard error %q, want its end to be %q", got, test.stderr)
			}
			o.sent(t, test.sent)
		})
	}
}

// TestEvict_OrdinaryUser_IsRefusedFirst: before the command shows what will happen.
func TestEvict_OrdinaryUser_IsRefusedFirst(t *testing.T) {
	const none = `{"host":0,"incarnation":"0000000000000000","forget":false}`
	for name, c := range map[string]struct {
		status         int
		answer         string
		code           int
		sent           string
		stderr, stdout string // the end of each
	}{
		"refused": {403, `{"error": {"code": "forbidden", "message": "uid 1000 may not evict a host", "hint": "run it as root"}}`, 77, none,
			"bakeryctl: uid 1000 may not evict a host\nhint: run it as root\n", ""},
		"bakeryd's user": {200, `{"outcome": "dead"}`, 0, none + evict3, cutOff + "\n", "host 3 (db3) declared dead\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o := operate(t, c.status, c.answer)
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{"--socket", o.socket, "evict", "--yes", "3"}, &app{stdout: &stdout, stderr: &stderr, ordinary: true})
			require.Equal(t, c.code, code)
			require.Equal(t, c.stdout, stdout.String())
			require.True(t, strings.HasSuffix(stderr.String(), c.stderr), stderr.String())
			require.Equal(t, c.code == 77, !strings.Contains(stderr.String(), "host 3 (db3)"))
			o.sent(t, c.sent)
		})
	}
}

func TestEvict_Terminal_Asks(t *testing.T) {
	const live = `"health": "live", "incarnation": "ffffffffffffffff", "silent_ms": 100`
	for _, test := range []struct {
		name, keys string
		then       string // the state of the host after the question
		code       int
		sent       string
		end        string
	}{
		{"yes", "y\r", silentHost3, 0, evict3, "host 3 (db3) declared dead\r\n"},
		{"in full", "Yes\r", silentHost3, 0, evict3, "host 3 (db3) declared dead\r\n"},
		{"no", "n\r", silentHost3, 1, "", "bakeryctl: host 3 (db3) is not evicted\r\n"},
		{"nothing", "\r", silentHost3, 1, "", "bakeryctl: host 3 (db3) is not evicted\r\n"},
		{"end", "\x04", silentHost3, 1, "", "bakeryctl: host 3 (db3) is not evicted\r\n"},
		{"too late", "y\r", live, 69, "", "bakeryctl: host 3 (db3) is not evicted: it has changed since it was shown\r\nhint: run the command again\r\n"},
		{"another", "y\r", strings.Replace(silentHost3, "ffffffffffffffff", "fffffffffffffffe", 1), 69, "",
			"bakeryctl: host 3 (db3) is not evicted: it has changed since it was shown\r\nhint: run the command again\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := operate(t, 200, `{"outcome": "dead"}`)
			x := onTerminal(t, "--socket", o.socket, "evict", "3")
			x.await("Evict host 3 (db3)? [y/N] ")
			o.host3 <- test.then
			x.press(test.keys)
			x.exits(test.code)
			x.await(test.end)
			o.sent(t, test.sent)
		})
	}
}
