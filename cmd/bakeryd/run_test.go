package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/logtest"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// running is a bakeryd in this process.
type running struct {
	t      *testing.T
	device string
	socket string
	code   chan int
	log    logtest.Log
}

// start runs bakeryd on a new lockspace, with a lease that outlasts stalls.
func start(t *testing.T, ctx context.Context, more ...string) *running {
	dir, err := os.MkdirTemp(".", "bakeryd") // not a tmpfs, and short because socket paths are limited
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &running{t: t, device: filepath.Join(dir, "disk.img"), socket: filepath.Join(dir, "s"), code: make(chan int, 1)}
	_, err = format.Format(t.Context(), []string{r.device}, format.Options{Hosts: 2, Locks: 2, Lease: standstill.Outlives(6 * time.Second)})
	require.NoError(t, err)
	go func() {
		r.code <- run(ctx, append([]string{"--device", r.device, "--host-id", "1", "--socket", r.socket,
			"--runtime-dir", dir, "--state-dir", dir}, more...), &r.log, &r.log)
	}()
	return r
}

// hold takes a lock and returns the connection that holds it.
func (r *running) hold(name string) net.Conn {
	r.t.Helper()
	var conn net.Conn
	var line string
	require.Eventually(r.t, func() bool {
		var err error
		if conn, err = net.Dial("unix", r.socket); err != nil {
			return false
		}
		body := fmt.Sprintf(`{"name": %q}`, name)
		fmt.Fprintf(conn, "POST /v1/lock HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		in := bufio.NewReader(conn)
		for !strings.Contains(line, `"granted"`) {
			if line, err = in.ReadString('\n'); err != nil || strings.HasPrefix(line, "HTTP/1.1 503") {
				conn.Close()
				return false
			}
		}
		return true
	}, 30*time.Second, 10*time.Millisecond, "log: %s", &r.log)
	return conn
}

func (r *running) exit() int {
	r.t.Helper()
	select {
	case code := <-r.code:
		return code
	case <-time.After(30 * time.Second):
		r.t.Fatal("bakeryd did not end")
		return 0
	}
}

func (r *running) snapshot() *report.Report {
	r.t.Helper()
	dev, _, _, err := lockspace.OpenDisks([]string{r.device}, lockspace.DiskOptions{ReadOnly: true})
	require.NoError(r.t, err)
	defer dev.Close()
	s, err := lockspace.Inspect(dev)
	require.NoError(r.t, err)
	return report.FromSnapshot(s)
}

func TestCleanLeave(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := start(t, ctx)
	conn := r.hold("x")
	require.NoError(t, conn.Close())
	cancel()
	require.Equal(t, exitOK, r.exit(), "log: %s", &r.log)
	report := r.snapshot()
	require.Equal(t, layout.StateLeft, report.Hosts[0].State)
	require.Empty(t, report.Locks[0].Holders)
	require.NoFileExists(t, r.socket)
}

// TestTermKeepsWhatIsHeld: to the clients, SIGTERM must not look like a release.
func TestTermKeepsWhatIsHeld(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := start(t, ctx)
	conn := r.hold("x")
	defer conn.Close()
	cancel()
	require.Equal(t, exitOK, r.exit(), "log: %s", &r.log)
	report := r.snapshot()
	require.Equal(t, layout.StateLive, report.Hosts[0].State, "a successor continues; log: %s", &r.log)
	require.Equal(t, 1, len(report.Locks[0].Holders)+len(report.Locks[0].Queue), "settled or not: %+v", report.Locks)
}

// TestListen: the address serves read-only requests and metrics only, and the socket serves the
// metrics, too.
func TestListen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := start(t, ctx, "--listen", "127.0.0.1:0")
	require.NoError(t, r.hold("x").Close()) // bakeryd has joined
	require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "serving read-only requests") }, time.Minute, 10*time.Millisecond)
	_, rest, _ := strings.Cut(r.log.String(), `msg="serving read-only requests" address=`)
	address, _, _ := strings.Cut(rest, "\n")
	get := func(client *http.Client, path string) (int, string) {
		resp, err := client.Get("http://" + address + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	bySocket := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.socket)
	}}}
	for _, client := range []*http.Client{http.DefaultClient, bySocket} {
		status, body := get(client, "/metrics")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, "\nbakery_joined 1\n")
		require.Contains(t, body, "\nbakery_grants_total 1\n")
		require.Contains(t, body, `bakery_lock_grants_total{lock="x"} 1`)
		require.Contains(t, body, `bakery_state{state="live"} 1`)
		status, body = get(client, "/v1/status")
		require.Equal(t, http.StatusOK, status, body)
	}
	resp, err := http.Post("http://"+address+"/v1/lock", "application/json", strings.NewReader(`{"name": "y"}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	_, body := get(bySocket, "/metrics")
	require.Contains(t, body, `bakery_refused_total{code="forbidden"} 1`)

	// While another process has the address, bakeryd serves locks and retries.
	second, end := context.WithCancel(t.Context())
	other := start(t, second, "--listen", address)
	require.NoError(t, other.hold("x").Close())
	require.Contains(t, other.log.String(), "listening on the address of --listen failed, retrying")
	cancel()
	require.Equal(t, exitOK, r.exit(), "log: %s", &r.log)
	require.Eventually(t, func() bool { return strings.Contains(other.log.String(), "serving read-only requests") }, time.Minute, 10*time.Millisecond)
	status, _ := get(http.DefaultClient, "/metrics")
	require.Equal(t, http.StatusOK, status)
	end()
	require.Equal(t, exitOK, other.exit(), "log: %s", &other.log)
	_, err = net.Dial("tcp", address)
	require.Error(t, err)
}

// TestParse_WithoutListen_ListensOnNoAddress.
func TestParse_WithoutListen_ListensOnNoAddress(t *testing.T) {
	o, err := parse([]string{"--device", "x"}, nil)
	require.NoError(t, err)
	require.Empty(t, o.listen)
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args    []string
		env     []string
		message string
	}{
		{nil, nil, "--device is missing"},
		{[]string{"--device", "x", "y"}, nil, `unexpected argument "y"`},
		{[]string{"--device", "x", "--host-id", "0"}, nil, `--host-id "0": want a whole number from 1, or auto`},
		{[]string{"--device", "x"}, []string{"BAKERYD_HOST_ID=one"}, `BAKERYD_HOST_ID="one": want a whole number from 1, or auto`},
		{[]string{"--device", "x", "--host-id", "two"}, []string{"BAKERYD_HOST_ID=1"}, `--host-id "two"`},
		{[]string{"--device", "x"}, []string{"BAKERYD_HANDOFF=0"}, `BAKERYD_HANDOFF="0": want a whole number from 1`},
		{[]string{"--device", "x"}, []string{"BAKERYD_HANDOFF=many"}, `BAKERYD_HANDOFF="many"`},
		{[]string{"--device", "x", "--handoff", "0"}, nil, `--handoff "0": want a whole number from 1`},
		{[]string{"--device", "x", "--linger", "5"}, nil, `--linger "5": want a time with its unit, such as 5s`},
		{[]string{"--device", "x"}, []string{"BAKERYD_LINGER=5"}, `BAKERYD_LINGER="5": want a time with its unit`},
		{[]string{"--device", "x", "--linger", "11ms"}, nil, "--linger 11ms: want 0s to 10ms"},
		{[]string{"--device", "x", "--linger", "-1ms"}, nil, "--linger -1ms: want 0s to 10ms"},
		{[]string{"--device", "x", "--log-level", "loud"}, nil, `--log-level "loud"`},
		{[]string{"--device", "x", "--log-format", "xml"}, nil, `--log-format "xml"`},
		{[]string{"--device", "x", "--fence", "shoot"}, nil, `--fence "shoot": want pr or exec`},
		{[]string{"--device", "x", "--fence", "exec"}, nil, "--fence exec without --fence-exec"},
		{[]string{"--device", "x", "--fence-exec", "true", "--fence-device", "/dev/y"}, nil, "--fence-exec is for --fence exec"},
		{[]string{"--device", "x", "--fence", "pr", "--fence-exec", "true"}, nil, "--fence-exec is for --fence exec"},
		{[]string{"--device", "x", "--fence", "exec", "--fence-exec", "true", "--fence-device", "/dev/y"}, nil, "--fence-device is for --fence pr"},
		{[]string{"--device", "x", "--listen", "0.0.0.0:9415"}, nil, `--listen: not a loopback address: "0.0.0.0:9415", want 127.0.0.1`},
		{[]string{"--device", "x"}, []string{"BAKERYD_LISTEN=9415"}, `BAKERYD_LISTEN: not a loopback address: "9415", want ADDRESS:PORT`},
		{[]string{"--device", "x", "--listen", "127.0.0.1:99999"}, nil, `--listen: "127.0.0.1:99999": want a port from 0 to 65535`},
		{[]string{"--device", "x", "--listen", "localhost:-1"}, nil, `--listen: "localhost:-1": want a port from 0 to 65535`},
		{[]string{"--device", "x"}, []string{"BAKERYD_LISTEN=[::1]:http"}, `BAKERYD_LISTEN: "[::1]:http": want a port from 0 to 65535`},
		{[]string{"--device", "x", "--policy-file", ""}, nil, "--policy-file is empty"},
		{[]string{"--nonsense"}, nil, "unknown flag --nonsense"},
	} {
		_, err := parse(c.args, c.env)
		require.ErrorContains(t, err, c.message, "%v", c.args)
	}
	o, err := parse([]string{"--host-id", "2"}, []string{"BAKERYD_DEVICE=/dev/x", "BAKERYD_HOST_ID=1", "BAKERYD_HOSTID=3", "BAKERY_SOCKET=s"})
	require.NoError(t, err)
	require.Equal(t, []string{"/dev/x"}, o.daemon.Devices)
	o, err = parse([]string{"--host-id", "2"}, []string{"BAKERYD_DEVICE=/dev/a /dev/b\n/dev/c\n"})
	require.NoError(t, err)
	require.Equal(t, []string{"/dev/a", "/dev/b", "/dev/c"}, o.daemon.Devices)
	o, err = parse([]string{"--device", "/dev/d", "--device", "/dev/e"}, []string{"BAKERYD_DEVICE=/dev/a /dev/b", "BAKERYD_HOST_ID=1", "BAKERYD_HOSTID=3", "BAKERY_SOCKET=s"})
	require.NoError(t, err)
	require.Equal(t, []string{"/dev/d", "/dev/e"}, o.daemon.Devices)
	o, err = parse([]string{"--host-id", "2"}, []string{"BAKERYD_DEVICE=/dev/x", "BAKERYD_HOST_ID=1", "BAKERYD_HOSTID=3", "BAKERY_SOCKET=s"})
	require.NoError(t, err)
	require.Equal(t, 2, o.daemon.HostID, "the command line has priority")
	require.Equal(t, []string{"BAKERYD_HOSTID"}, o.unknown)

	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"--help"}, &out, &errs))
	require.Contains(t, out.String(), "Exit codes:")
	require.NotRegexp(t, `--[a-z-]+ (string|int|duration|stringArray) `, out.String(), "a value needs a name")
	require.Empty(t, errs.String())
	require.Equal(t, exitUsage, run(t.Context(), []string{"--nonsense"}, &out, &errs))
	require.Equal(t, "bakeryd: wrong command line: unknown flag --nonsense\nhint: run bakeryd --help\n", errs.String())
	require.Contains(t, wrongSettings(errNoDevice), "hint: give --device PATH, or set BAKERYD_DEVICE")
	require.Contains(t, wrongSettings(errors.New("BAKERYD_HANDOFF 0, want 1 or more")), "wrong environment: BAKERYD_HANDOFF 0, want 1 or more\nhint: correct it")
}

// TestRun_StartFails_LogsCauseAndRemedy: each error says what to do.
func TestRun_StartFails_LogsCauseAndRemedy(t *testing.T) {
	top, err := os.MkdirTemp(".", "bakeryd")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	in := func(name string) string { return filepath.Join(top, name) }
	for name, size := range map[string]int{"blank": 1 << 20, "data": 0, "tiny": 100} {
		require.NoError(t, os.WriteFile(in(name), make([]byte, size), 0o600))
	}
	require.NoError(t, os.WriteFile(in("data"), bytes.Repeat([]byte("another record. "), 1<<16), 0o600))
	for _, disks := range [][]string{{in("good")}, {in("a"), in("b"), in("c")}} {
		_, err = format.Format(t.Context(), disks, format.Options{Hosts: 2, Locks: 2, Lease: 6 * time.Second})
		require.NoError(t, err)
	}
	served, err := net.Listen("unix", in("served"))
	require.NoError(t, err)
	defer served.Close()
	for _, c := range []struct {
		name        string
		args        []string // after those of a start that succeeds
		env         string
		code        int
		err, remedy string
	}{
		{"blank", []string{"--device", in("blank")}, "", exitNoDevice, "never formatted", "check the device name; to create a lockspace, run bakeryctl format"},
		{"other data", []string{"--device", in("data")}, "", exitNoDevice, "not such a record", "lsblk -f shows what the device holds"},
		{"no device", []string{"--device", in("none")}, "", exitNoDevice, "no such file or directory", "correct --device, or attach the device"},
		{"directory", []string{"--device", top}, "", exitNoDevice, "but a directory", "want a block device, or a file that was formatted"},
		{"too small", []string{"--device", in("tiny")}, "", exitNoDevice, "device is too small", "needs a larger device"},
		{"few disks answer", []string{"--device", in("a"), "--device", in("none")}, "", exitNoDevice, "needs 2 of 3, found 1", "correct the paths that are wrong"},
		{"two disks of one", []string{"--device", in("a"), "--device", top + "/./a"}, "", exitNoDevice, "give each disk once", ""},
		{"host id", []string{"--host-id", "3"}, "", exitUsage, "host id 3, want 1 to 2, the hosts of the lockspace", "set --host-id to one of these, or to auto"},
		{"host id in the environment", nil, "BAKERYD_HOST_ID=3", exitUsage, "host id 3, want 1 to 2", "set BAKERYD_HOST_ID to one of these"},
		{"name", []string{"--name", "a\nb"}, "", exitUsage, "host name", "correct --name"},
		{"runtime directory", []string{"--runtime-dir", in("blank")}, "", exitNoDevice, "runtime directory: mkdir ", "set --runtime-dir to a directory"},
		{"state directory", nil, "BAKERYD_STATE_DIR=" + in("blank"), exitNoDevice, "state directory: mkdir ", "set BAKERYD_STATE_DIR to a directory"},
		{"watchdog", []string{"--watchdog", in("none")}, "", exitUnavailable, "modprobe softdog", ""},
		{"socket is served", []string{"--socket", in("served")}, "", exitUnavailable, "another bakeryd serves this socket", "set --socket to another path"},
		{"socket is a file", []string{"--socket", in("blank")}, "", exitUnavailable, "address already in use", "which is no socket"},
		{"socket in a file", []string{"--socket", in("blank/s")}, "", exitUnavailable, "not a directory", "in a directory that exists or can be created"},
		{"long path of the socket", []string{"--socket", in(strings.Repeat("s", 108))}, "", exitUnavailable, "invalid argument", "at most 107 bytes"},
	} {
		args := []string{"--runtime-dir", in("run")}
		if !slices.Contains(c.args, "--device") {
			args = append(args, "--device", in("good"))
		}
		if !slices.Contains(c.args, "--socket") {
			args = append(args, "--socket", in("s"))
		}
		if name, value, set := strings.Cut(c.env, "="); set {
			t.Setenv(name, value)
		}
		if c.env == "" || strings.Contains(c.env, "HOST_ID") {
			args = append(args, "--state-dir", in("state"))
		}
		var log bytes.Buffer
		code := run(t.Context(), append(args, c.args...), &log, &log)
		if name, _, set := strings.Cut(c.env, "="); set {
			os.Unsetenv(name)
		}
		require.Equal(t, c.code, code, "%s: %s", c.name, &log)
		_, last, _ := strings.Cut(log.String(), `msg="bakeryd ends"`)
		why, remedy, found := strings.Cut(last, " remedy=")
		require.Contains(t, why, c.err, c.name)
		require.NotContains(t, why, "invalid request", c.name)
		require.Equal(t, c.remedy != "", found, c.name)
		require.Contains(t, remedy, c.remedy, c.name)
	}
}

// TestRemedy_HostIDNotLeft_NamesTheCommand: a machine that was installed again needs that command.
func TestRemedy_HostIDNotLeft_NamesTheCommand(t *testing.T) {
	o, err := parse([]string{"--device", "x"}, []string{"BAKERYD_HOST_ID=3"})
	require.NoError(t, err)
	remedy := o.remedy(fmt.Errorf("join: %w", lease.ErrNotLeft))
	require.Contains(t, remedy, "run bakeryctl evict 3 --forget on another host")
	require.Contains(t, remedy, "set BAKERYD_HOST_ID to another id")
}

// TestParse_LogLevel_IsReadBySlog: settings have had INFO and warn+2.
func TestParse_LogLevel_IsReadBySlog(t *testing.T) {
	for text, want := range map[string]slog.Level{
		"": slog.LevelInfo, "INFO": slog.LevelInfo, "Debug": slog.LevelDebug, "warn": slog.LevelWarn, "warn+2": slog.LevelWarn + 2, "ERROR-1": slog.LevelError - 1,
	} {
		o, err := parse([]string{"--device", "x"}, []string{"BAKERYD_LOG_LEVEL=" + text})
		require.NoError(t, err, text)
		require.Equal(t, want, o.logLevel, text)
	}
	for _, text := range []string{"verbose", "4", "warn+", " info"} {
		_, err := parse([]string{"--device", "x", "--log-level", text}, nil)
		require.EqualError(t, err, fmt.Sprintf("--log-level %q: want debug, info, warn or error", text))
	}
}

// TestParse_VersionWithWrongEnvironment_HasNoError: as --help.
func TestParse_VersionWithWrongEnvironment_HasNoError(t *testing.T) {
	for _, flag := range []string{"--version", "--help"} {
		o, err := parse([]string{flag}, []string{"BAKERYD_FENCE=x", "BAKERYD_LOG_FORMAT=x", "BAKERYD_HANDOFF=x"})
		require.NoError(t, err)
		require.True(t, o.version || o.help != "")
	}
}

// TestExitCodes checks the codes that the help promises.
func TestExitCodes(t *testing.T) {
	for err, code := range map[error]int{
		api.ErrInvalid: exitUsage, lockspace.ErrNoLockspace: exitNoDevice, lockspace.ErrStride: exitNoDevice,
		hostid.ErrTaken: exitUnavailable, lease.ErrInUse: exitUnavailable, errSocket: exitUnavailable,
		daemon.ErrWatchdog: exitUnavailable, membership.ErrFenceAgent: exitUnavailable,
		api.ErrLeaseLost: exitLost, context.DeadlineExceeded: exitLost,
	} {
		require.Equal(t, code, exitCode(fmt.Errorf("it went wrong: %w", err)), "%v", err)
	}
}

// TestWrongPolicy: with any policy file bakeryd serves locks to root and its own user.
func TestWrongPolicy(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	policy := filepath.Join(dir, "policy")
	require.NoError(t, os.WriteFile(policy, []byte("# all\nallow everybody *\n"), 0o644))
	for path, message := range map[string]string{policy: policy + `:2: unknown word \"everybody\": want allow user NAME PATTERN...`, policy + "-that-is-not-there": "no such file or directory"} {
		ctx, cancel := context.WithCancel(t.Context())
		r := start(t, ctx, "--policy-file", path)
		require.NoError(t, r.hold("x").Close())
		require.Contains(t, r.log.String(), "only root and bakeryd's own user may take locks until")
		require.Contains(t, r.log.String(), message)
		cancel()
		require.Equal(t, exitOK, r.exit())
	}
}
