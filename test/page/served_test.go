package page

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// forward forwards a port of this machine to a socket, like ssh -L.
func forward(t *testing.T, socket string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer far.Close()
				go func() {
					_, _ = io.Copy(far, near)
					_ = far.(*net.UnixConn).CloseWrite()
				}()
				_, _ = io.Copy(near, far)
			}()
		}
	}()
	return "http://" + ln.Addr().String() + "/"
}

// object is a JSON object.
type object map[string]any

// stage serves the page of a bakeryd with other answers.
type stage struct {
	url string

	mu     sync.Mutex
	answer object
	events []object
}

func newStage(t *testing.T, real string, answer object) *stage {
	t.Helper()
	s := &stage{answer: answer}
	target, err := url.Parse(real)
	require.NoError(t, err)
	behind := httputil.NewSingleHostReverseProxy(target)
	mux := http.NewServeMux()
	mux.Handle("/", behind)
	mux.HandleFunc("/page/status", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answer["at"] = time.Now().UTC()
		_ = json.NewEncoder(w).Encode(s.answer)
	})
	mux.HandleFunc("/v1/events", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.events {
			_ = json.NewEncoder(w).Encode(e)
		}
		s.events = nil
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	s.url = srv.URL + "/"
	return s
}

// set sets the next answer.
func (s *stage) set(answer object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

const second = 1000

// answer returns the answer of a healthy bakeryd: hosts with a lease of 30 s, and locks, of which
// the first held are held; the first queued of those have waiters.
func answer(hosts, locks, held, queued int, change ...func(object)) object {
	hs, ls := []object{}, []object{}
	for id := 1; id <= hosts; id++ {
		hs = append(hs, host(id))
	}
	for n := 1; n <= locks; n++ {
		l := object{"name": fmt.Sprintf("lock-%05d", n), "number": n, "permits": 1, "creation": fmt.Sprint(n), "holders": []object{}, "queue": []object{}, "stuck": ""}
		if n <= held {
			l["holders"] = []object{holder(1+n%hosts, n)}
		}
		if n <= queued {
			l["queue"] = []object{{"place": 1, "host": 1 + (n+1)%hosts, "host_name": fmt.Sprint("db", 1+(n+1)%hosts), "mode": "exclusive", "ticket": fmt.Sprint(n + 1), "phase": "waiting"}}
		}
		ls = append(ls, l)
	}
	a := object{"read": object{"ago_ms": 300, "took_ms": 12, "bytes": 1 << 20, "every_ms": 2000}, "report": object{
		"lockspace": object{"name": "prod", "uuid": "0", "device": "/dev/mapper/locks", "stride": 4096, "hosts": 2000, "locks": 10000, "lease_ms": 30 * second,
			"policy": "lease", "warnings": []string{}},
		"this_host": object{"id": 1, "name": "db1", "incarnation": "0000000000000001", "state": "live", "lease_left_ms": 27 * second},
		"hosts":     hs, "locks": ls, "damaged": []object{}, "problems": []object{}}}
	for _, c := range change {
		c(a)
	}
	return a
}

func host(id int) object {
	return object{"id": id, "name": fmt.Sprint("db", id), "state": "live", "health": "live", "dead": false, "forgotten": false, "asked_to_leave": false, "unreadable": false,
		"incarnation": fmt.Sprintf("%016x", id), "sequence": "7", "read_horizon": 3, "watchdog_armed": false, "watchdog_ms": 0, "pr_key": "0000000000000000", "verdicts": []object{}, "silent_ms": 1200}
}

func holder(host, n int) object {
	return object{"host": host, "host_name": fmt.Sprint("db", host), "pid": 4000 + n, "command": fmt.Sprint("/usr/local/bin/work --on ", n), "since": time.Now().Add(-3 * time.Minute).UTC(),
		"mode": "exclusive", "token": fmt.Sprint(3676650270761156864 + n), "phase": "held", "published": true, "orphan": false}
}

// in returns a nested object, to change it; a number is an index in a list.
func in(o object, path string) object {
	var at any = o
	for part := range strings.SplitSeq(path, ".") {
		switch x := at.(type) {
		case object:
			at = x[part]
		case []object:
			var i int
			_, _ = fmt.Sscan(part, &i)
			at = x[i]
		}
	}
	return at.(object)
}

func set(path string, members object) func(object) {
	return func(o object) { maps.Copy(in(o, path), members) }
}

// problem adds a problem to the report.
func problem(severity, kind, text, why, remedy string) func(object) {
	return func(o object) {
		r := in(o, "report")
		r["problems"] = append(r["problems"].([]object), object{"severity": severity, "kind": kind, "subject": text, "text": text, "why": why, "remedy": remedy})
	}
}

// latencies adds measured latencies.
func latencies(n int) func(object) {
	of := func(p50, p99, most, errors int) object {
		return object{"count": 1000 + 40*n, "p50_us": p50, "p99_us": p99 + (n*7919)%(p99/2), "max_us": most, "errors": errors}
	}
	return set("report.this_host", object{"io": object{"oldest_ms": 0, "read": of(245, 791, 2570, 0), "write": of(344, 1490, 12400, 2)}, "renewals": of(610, 2300, 15100, 0)})
}

// disks adds three member disks, of which one is down.
func disks(o object) {
	of := func(p50, p99 int) object {
		return object{"count": 9, "p50_us": p50, "p99_us": p99, "max_us": p99, "errors": 0}
	}
	all := []object{}
	for i, name := range []string{"a", "b", "c"} {
		all = append(all, object{"position": i + 1, "device": "/dev/mapper/vote-" + name, "uuid": "0", "state": "up", "since": time.Now().Add(-time.Hour).UTC(),
			"failures": 0, "behind": 0, "io": object{"read": of(245, 791), "write": of(344, 1490), "in_flight": 0, "oldest_ms": 0}})
	}
	all[2]["state"], all[2]["error"], all[2]["failures"], all[2]["behind"] = "down", "input/output error", 12, 7
	in(o, "report")["disks"] = all
}
