package daemon

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/policy"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/test/logtest"
)

// policed is a daemon that serves a socket by a policy, with its log.
type policed struct {
	*served
	file       *policy.File
	policyPath string
	log        *logtest.Log
}

// police serves by a policy. With an empty one only root may take locks.
func police(t *testing.T, d *Host, text string) *policed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIP: needs root, to become another user")
	}
	log := new(logtest.Log)
	logger := slog.New(slog.NewTextHandler(log, nil))
	path := policyFile(t, text)
	file, err := policy.Open(path, logger)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "bakery") // short: socket paths are limited
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &policed{file: file, policyPath: path, log: log,
		served: &served{t: t, d: d, srv: checked(server.New(server.Config{Host: alone(d), Log: logger, Policy: file})), path: filepath.Join(dir, "s")}}
	ln, err := server.Listen(p.path)
	require.NoError(t, err)
	serving(t, p.srv, p.srv.Serve, ln)
	return p
}

// policyFile creates a policy file that only its owner can write to.
func policyFile(t *testing.T, policy string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "policy")
	require.NoError(t, os.WriteFile(path, []byte(policy), 0o644))
	require.NoError(t, os.Chmod(path, 0o644))
	return path
}

// by makes the last call on a connection, and returns the status and the error.
func (p *policed) by(conn net.Conn, call, body string) (int, api.Error) {
	p.t.Helper()
	require.NoError(p.t, conn.SetDeadline(time.Now().Add(generous)))
	_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: bakery\r\nContent-Length: %d\r\n\r\n%s", call, len(body), body)
	require.NoError(p.t, err)
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(p.t, err)
	defer conn.Close() // ends a granted lock
	var said struct {
		Error api.Error
		Event string
	}
	require.NoError(p.t, json.NewDecoder(r.Body).Decode(&said))
	return r.StatusCode, said.Error
}

const (
	stranger = 54321 // a user and
	hers     = 54322 // a group that no machine has
)

// TestEveryCallIsRefused: a user that the policy does not name is refused, before all other checks.
func TestEveryCallIsRefused(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).host(1), "")
	require.NoError(t, acquire(t, p.d, locks.Request{Name: "x"}).Release())
	total := map[string]int{}
	for a := access.Look; a <= access.Floor; a++ {
		total[a.String()] = 0
	}
	bodies := map[string]string{
		"POST /v1/lock": `{"name": "x"}`, "POST /v1/create": `{"name": "y"}`, "POST /v1/remove": `{"name": "x"}`,
		"POST /v1/evict": `{"host": 2, "incarnation": "0000000000000005"}`, "POST /v1/meet": `{"host": 2, "rounds": 1, "timeout_ms": 1}`,
		"POST /v1/floor": `{"name": "x", "rounds": 1}`, "POST /v1/request": `{"name": "x", "message": "please"}`,
	}
	for pattern, action := range p.srv.Actions() {
		switch action {
		case access.Look, access.Change: // of the user's own hold: TestModeOfAnotherUsersHold
			continue
		}
		if pattern == "GET /v1/link" {
			continue // TestLinkAsksWhoMay
		}
		body, known := bodies[pattern]
		require.True(t, known, "%s: say here what is refused", pattern)
		conn := dialAsMember(t, stranger, hers, nil, p.path)
		status, e := p.by(conn, pattern, body)
		require.Equal(t, http.StatusForbidden, status, pattern)
		require.Equal(t, "forbidden", e.Code, pattern)
		require.Contains(t, e.Message, fmt.Sprintf("uid %d may not ", stranger))
		require.NotEmpty(t, e.Hint)
		total[action.String()]++
		require.Eventually(t, func() bool {
			return strings.Contains(p.log.String(), fmt.Sprintf("uid=%d gid=%d pid=%d action=%v", stranger, hers, os.Getpid(), action))
		}, generous, time.Millisecond, "the log: %s", p.log)
		// Root is not refused.
		if action != access.Meet && action != access.Evict && action != access.Lock {
			status, _ := p.by(p.dial(), pattern, body)
			require.NotEqual(t, http.StatusForbidden, status, pattern)
		}
	}
	for action, n := range total {
		require.Equal(t, n, strings.Count(p.log.String(), " action="+action+" "), action)
	}
	status, _ := p.by(dialAsMember(t, stranger, hers, nil, p.path), "GET /v1/status", "")
	require.Equal(t, http.StatusOK, status, "every user may read")
	for call, want := range map[string]int{"value": http.StatusNotFound, "blocker": http.StatusOK} {
		status, _ = p.by(dialAsMember(t, stranger, hers, nil, p.path), "GET /v1/"+call+"?name=none", "")
		require.Equal(t, want, status, call)
	}
}

// TestOnlyTheKernelSaysWho: a body's statements about its sender are for display.
func TestOnlyTheKernelSaysWho(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).host(1), fmt.Sprintf("allow user %d a*\n", stranger))
	dial := func() net.Conn { return dialAsMember(t, stranger, hers, nil, p.path) }
	status, e := p.by(dial(), "POST /v1/lock", `{"name": "b", "pid": 1, "command": "uid=0"}`)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, e.Message, `may not lock "b"`)
	require.Contains(t, p.log.String(), fmt.Sprintf(`pid=%d action=lock lock=b`, os.Getpid()))
	require.NotContains(t, p.log.String(), "pid=1 ")
	status, e = p.by(dial(), "POST /v1/lock", `{"name": "b", "uid": 0}`)
	require.Equal(t, http.StatusForbidden, status, "unknown members are ignored")
	require.Equal(t, "forbidden", e.Code)
	status, _ = p.by(dial(), "POST /v1/lock", `{"name": "ab", "nonblock": true}`)
	require.Equal(t, http.StatusOK, status)
}

// TestNamesAreWhatTheyAre: a lock's name is no pattern, and is not normalized to match one.
func TestNamesAreWhatTheyAre(t *testing.T) {
	p := police(t, realCluster(t, 8, 8).host(1), fmt.Sprintf("allow user %d job\nallow group %d db/*\n", stranger, hers))
	for name, want := range map[string]int{
		"job": 200, "db/": 200, "db/a b": 200, "*": 403, "j*b": 403, "?ob": 403, "Job": 403, "job ": 403, "db": 403, "xdb/": 403, "db\\u0338/": 403,
		"": 400, "job\\u0000": 400, "db/\\n": 400,
	} {
		status, e := p.by(dialAsMember(t, stranger, hers, nil, p.path), "POST /v1/lock", `{"name": "`+name+`", "nonblock": true}`)
		require.Equal(t, want, status, "%q: %v", name, e)
		status, _ = p.by(dialAsMember(t, stranger, hers, nil, p.path), "POST /v1/create", `{"name": "`+name+`"}`)
		require.Equal(t, want, status, "%q is created", name)
	}
}

// TestGroupsOfACaller: they are those at the time of the connection, including all supplementary
// ones.
func TestGroupsOfACaller(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).host(1), fmt.Sprintf("allow group %d x\n", hers))
	many := []uint32{}
	for g := uint32(70000); len(many) < 1000; g++ {
		many = append(many, g)
	}
	for _, c := range []struct {
		gid    uintptr
		groups []uint32
		want   int
	}{
		{hers, nil, 200}, {7, []uint32{8, hers}, 200}, {7, append(slices.Clone(many), hers), 200}, {7, nil, 403}, {7, []uint32{8}, 403}, {7, many, 403}, {0, []uint32{0}, 403},
	} {
		status, _ := p.by(dialAsMember(t, stranger, c.gid, c.groups, p.path), "POST /v1/lock", `{"name": "x", "nonblock": true}`)
		require.Equal(t, c.want, status, "gid %d, %d groups", c.gid, len(c.groups))
	}
}

// TestLinkAsksWhoMay: every user may open a link, and access is checked for every lock requested on
// it.
func TestLinkAsksWhoMay(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).host(1), fmt.Sprintf("allow user %d mine\n", stranger))
	l := linkBy(t, dialAsMember(t, stranger, hers, nil, p.path), `{"lock":{"name":"theirs"}}`)
	e := l.until("refused")
	require.Equal(t, "forbidden", e.Code)
	require.Contains(t, e.Message, `may not lock "theirs"`)
	require.Contains(t, e.Hint, fmt.Sprintf(`allow user %d theirs`, stranger))
	l.say(`{"lock":{"name":"mine"}}`)
	token := l.until("granted").Token
	l.unlock(token)
	l.until("released")
	// in a form that package client does not write
	l.say(`{"lock":{"name":"theirs","nonblock":true}}`)
	require.Equal(t, "forbidden", l.until("refused").Code)
	l.say(`{ "lock": {"name": "theirs"} }`)
	require.Equal(t, "forbidden", l.until("refused").Code)
	require.Equal(t, 3, strings.Count(p.log.String(), " action=lock "))
	all, err := p.d.Locks(t.Context())
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(all.Locks), "theirs", "nothing is created by a refused lock")
}

// TestNewPolicyTakesNothingAway: holds stay; new requests are checked by the new policy.
func TestNewPolicyTakesNothingAway(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).host(1), fmt.Sprintf("allow user %d x\n", stranger))
	session := fmt.Sprintf("%032x", 7)
	dial := func() *net.UnixConn { return dialAsMember(t, stranger, hers, nil, p.path) }
	first := linkBy(t, dial(), `{"lock":{"name":"x","session":"`+session+`"}}`)
	token := first.until("granted").Token
	require.NoError(t, os.WriteFile(p.policyPath, []byte("# nobody\n"), 0o644))
	p.file.Reload()

	again := linkBy(t, dial(), fmt.Sprintf(`{"lock":{"name":"x","session":"%s","token":"%v"}}`, session, token))
	require.Equal(t, token, again.until("granted").Token, "it reconnects to its hold")
	status, e := p.by(dial(), "POST /v1/value", fmt.Sprintf(`{"session":"%s","token":"%v","value":"AAAA"}`, session, token))
	require.Equal(t, http.StatusOK, status, "%v", e)
	again.unlock(token)
	again.until("released")
	again.say(`{"lock":{"name":"x"}}`)
	require.Equal(t, "forbidden", again.until("refused").Code)
	linked := linkBy(t, dial(), fmt.Sprintf(`{"lock":{"name":"x","session":"%s"}}`, session))
	require.Equal(t, "forbidden", linked.until("refused").Code, "a session that is over is none")
}

// TestPolicyFile_Invalid_RefusalsAndStatusNameIt: not a line that is already there.
func TestPolicyFile_Invalid_RefusalsAndStatusNameIt(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).host(1), "# none\n")
	ask := func() api.Error {
		status, e := p.by(dialAsMember(t, stranger, hers, nil, p.path), "POST /v1/lock", `{"name": "x"}`)
		require.Equal(t, http.StatusForbidden, status)
		return e
	}
	problems := func() string {
		conn, err := net.Dial("unix", p.path)
		require.NoError(t, err)
		defer conn.Close()
		fmt.Fprint(conn, "GET /v1/status HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		return string(answer)
	}
	require.Contains(t, ask().Hint, "add the line")
	require.NotContains(t, problems(), `"kind": "policy"`)
	require.NoError(t, os.WriteFile(p.policyPath, fmt.Appendf(nil, "# who\n\nalow user %d x\n", stranger), 0o644))
	require.Contains(t, ask().Message, "the file has changed since it was read")
	require.Contains(t, ask().Hint, "as root: run systemctl reload bakeryd; if it is refused even then, add the line")
	require.Contains(t, problems(), `"text": "the policy file `+p.policyPath+` has changed since it was read"`)
	require.Contains(t, problems(), `"why": "the policy that was read before stays in force"`)
	require.Contains(t, problems(), `"remedy": "as root: run systemctl reload bakeryd"`)
	p.file.Reload()
	require.NotContains(t, problems(), "has changed since")
	for _, text := range []string{ask().Message, p.log.String()} {
		require.Contains(t, text, "the policy file "+p.policyPath+" is invalid, line 3: unknown word ")
	}
	require.Contains(t, problems(), `"the policy file `+p.policyPath+` is invalid"`)
	require.Contains(t, ask().Hint, "fix line 3 of "+p.policyPath)
	require.Contains(t, problems(), "NAME PATTERN...; the policy that was read before stays in force")
	require.Contains(t, problems(), `"remedy": "as root: fix line 3 of `)
	require.NoError(t, os.WriteFile(p.policyPath, fmt.Appendf(nil, "allow user %d x\n", stranger), 0o644))
	require.Regexp(t, `"text": "the policy file `+p.policyPath+` was invalid when it was read at \d\d:\d\d:\d\d, and has changed since"`, problems())
	require.Contains(t, problems(), "NAME PATTERN...; the policy that was read before stays in force")
	require.Contains(t, problems(), `"remedy": "as root: run systemctl reload bakeryd"`)
	require.NoError(t, os.WriteFile(p.policyPath, fmt.Appendf(nil, "# who\n\nalow user %d x\n", stranger), 0o644))

	var err error
	p.file, err = policy.Open(p.policyPath, slog.Default())
	require.ErrorIs(t, err, access.ErrPolicy)
	require.NoError(t, os.WriteFile(p.policyPath, fmt.Appendf(nil, "allow user %d x\n", stranger), 0o644))
	no := new(access.Refusal)
	require.ErrorAs(t, access.Rules{Policy: p.file.Current.Load()}.Decide(access.Caller{UID: stranger}, access.Lock, "x"), &no)
	require.True(t, no.OfPolicy() && p.file.Changed())
	no.SetChanged()
	require.Equal(t, "as root: run systemctl reload bakeryd", no.Hint(), "it is fixed, but not read")
}

// TestAnothersHoldIsForbidden: and the lock's name is not shown.
func TestAnothersHoldIsForbidden(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).host(1), fmt.Sprintf("allow user %d *\n", stranger))
	session := fmt.Sprintf("%032x", 9)
	holder := linkBy(t, dialAsMember(t, 54399, hers, nil, p.path), `{"lock":{"name":"secret"}}`)
	require.Equal(t, "forbidden", holder.until("refused").Code)
	holder = p.link(`{"lock":{"name":"secret","session":"` + session + `"}}`) // root's
	token := holder.until("granted").Token
	for call, body := range map[string]string{
		"POST /v1/value": fmt.Sprintf(`{"session":"%s","token":"%v","value":"AAAA"}`, session, token),
		"POST /v1/mode":  fmt.Sprintf(`{"session":"%s","token":"%v","mode":"shared"}`, session, token),
		"POST /v1/lock":  fmt.Sprintf(`{"name":"secret","session":"%s","token":"%v"}`, session, token),
	} {
		status, e := p.by(dialAsMember(t, stranger, hers, nil, p.path), call, body)
		require.Equal(t, http.StatusForbidden, status, call)
		require.Equal(t, "forbidden", e.Code)
		require.Contains(t, e.Message, "is another user's")
		require.NotContains(t, e.Message, "secret")
	}
	require.Contains(t, p.log.String(), "action=change lock=secret")
	require.Contains(t, p.log.String(), "action=lock lock=secret")
	holder.unlock(token)
	holder.until("released")
}

// TestNoConnectionIsNobody: a call that did not come by the socket may only read.
func TestNoConnectionIsNobody(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).host(1), "allow group 0 *")
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, conn := range []net.Conn{nil, a} {
		r, err := http.NewRequestWithContext(p.srv.HTTP().ConnContext(t.Context(), conn), "POST", "http://bakery/v1/create", strings.NewReader(`{"name": "x"}`))
		require.NoError(t, err)
		w := &statusRecorder{header: http.Header{}}
		p.srv.HTTP().Handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusForbidden, w.status)
	}
}

// statusRecorder keeps the status of an answer.
type statusRecorder struct {
	header http.Header
	status int
}

func (r *statusRecorder) Header() http.Header         { return r.header }
func (r *statusRecorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *statusRecorder) WriteHeader(status int)      { r.status = status }

func TestNobody(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	whole, part := write("whole", "         0          0 4294967295\n"), write("part", "0 100000 65536\n")
	overflow := write("overflow", "65533\n")
	require.Equal(t, -1, access.Unmapped(whole, overflow))
	require.Equal(t, 65533, access.Unmapped(part, overflow))
	require.Equal(t, 65534, access.Unmapped(part, filepath.Join(dir, "none")))
	require.Equal(t, -1, access.Unmapped(filepath.Join(dir, "none"), overflow), "without user namespaces all users have a number")
}

// TestWitnessIsItsUsers: a user of the socket cannot keep another user's lock by opening its FIFO.
func TestWitnessIsItsUsers(t *testing.T) {
	p := police(t, realCluster(t, 8, 4).mortal(1).d, fmt.Sprintf("allow user %d x\n", stranger))
	l := linkBy(t, dialAsMember(t, stranger, hers, nil, p.path), `{"lock":{"name":"x","witness":true}}`)
	granted := l.until("granted")
	info, err := os.Lstat(granted.Witness)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe|0o600, info.Mode())
	require.EqualValues(t, stranger, info.Sys().(*syscall.Stat_t).Uid)
	successor, err := liveness.Open(granted.Witness, fdlimit.UnknownUser)
	require.NoError(t, err)
	successor.Leave()
	l.unlock(granted.Token)
	l.until("released")
	require.NoFileExists(t, granted.Witness)

	require.NoError(t, unix.Mkfifo(granted.Witness, 0o600))
	require.NoError(t, os.Lchown(granted.Witness, stranger, hers))
	_, err = liveness.Open(granted.Witness, fdlimit.UnknownUser)
	require.ErrorContains(t, err, fmt.Sprintf("a file of user %d, want 0", stranger), "root has not made that one")
}
