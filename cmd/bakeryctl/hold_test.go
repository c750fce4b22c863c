package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// manager is a systemd that receives notifications.
type manager struct {
	t        *testing.T
	conn     *net.UnixConn
	socket   string
	received []string // lines
}

func listenAsSystemd(t *testing.T) *manager {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{t: t, conn: conn, socket: socket}
}

// begin starts bakeryctl hold as systemd does.
func (m *manager) begin(b *fakeBakeryd, env []string, flags ...string) *wrapper {
	m.t.Helper()
	p := prepare(m.t, append(append([]string{"hold", "--socket", b.Socket}, flags...), "x")...)
	p.cmd.Env = append(append(p.cmd.Env, "NOTIFY_SOCKET="+m.socket), env...)
	p.start()
	return p
}

// until blocks until all these lines were received.
func (m *manager) until(lines ...string) {
	m.t.Helper()
	for _, line := range lines {
		for !slices.Contains(m.received, line) {
			m.listen(line)
		}
	}
}

func (m *manager) listen(missing string) {
	m.t.Helper()
	buf := make([]byte, 4096)
	if err := m.conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.conn.Read(buf)
	if err != nil {
		m.t.Fatalf("%q was not received: %v; received %q", missing, err, m.received)
	}
	m.received = append(m.received, strings.Split(string(buf[:n]), "\n")...)
}

func (m *manager) not(line string) {
	m.t.Helper()
	if slices.Contains(m.received, line) {
		m.t.Errorf("systemd received %q", m.received)
	}
}

func TestHold_Systemd_IsNotified(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(signalName(s), func(t *testing.T) {
			first, second := make(chan struct{}), make(chan struct{})
			b := serve(t, func(x *exchange) {
				x.Wait(2, time.Minute)
				<-first
				x.Wait(1, time.Minute)
				<-second
				holding(x)
			})
			m := listenAsSystemd(t)
			p := m.begin(b, nil)
			m.until("STATUS=waiting for x: 2 ahead")
			close(first)
			m.until("STATUS=waiting for x: 1 ahead")
			m.not("READY=1")
			close(second)
			m.until("READY=1", "STATUS=holding x, token "+token.String())
			m.not("STOPPING=1")
			p.signal(syscall.SIGUSR1) // ignored: there is no command
			p.signal(s)
			m.until("STOPPING=1")
			switch code := p.wait(); {
			case code == cli.ExitUnavailable && standstill.Expected(): // it was stopped during the release
			case code != cli.ExitOK:
				t.Errorf("exit code %d", code)
			default:
				p.printed(t, "", "")
			}
			b.AwaitRelease()
		})
	}
}

// The next holder must not run at the same time as units that systemd is stopping.
func TestHold_Lost_KeepsTheLockWhileUnitsStop(t *testing.T) {
	t.Parallel()
	lost := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Grace = 30 * time.Minute
		x.Grant(time.Hour)
		<-lost
		x.Lose("host 3 was evicted")
	})
	m := listenAsSystemd(t)
	p := m.begin(b, nil)
	m.until("READY=1")
	close(lost)
	m.until("STOPPING=1", "STATUS=lost x: lock lost: host 3 was evicted")
	if !slices.ContainsFunc(m.received, func(line string) bool { return strings.HasPrefix(line, "EXTEND_TIMEOUT_USEC=18") }) {
		t.Errorf("no stop timeout of 30 minutes in %q", m.received)
	}
	if !b.Held() {
		t.Error("the lock is free while units are being stopped")
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != cli.ExitLost {
		t.Errorf("exit code %d, want %d", code, cli.ExitLost)
	}
	p.printed(t, "", "bakeryctl: lost \"x\": lock lost: host 3 was evicted\n")
	b.AwaitRelease()
}

func TestHold_Lost_EndsAfterTheGrace(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	tests := []struct {
		name   string
		lease  time.Duration
		lose   func(x *exchange)
		stderr string
	}{
		{"no renewal", grace + standstill.Lease, func(x *exchange) { <-x.Gone }, "its lease is about to end without a renewal"},
		{"evicted", time.Hour, func(x *exchange) { x.Lose("evicted") }, "lock lost: evicted"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ready := make(chan struct{})
			b := serve(t, func(x *exchange) {
				x.Grace = grace
				x.Grant(test.lease)
				<-ready
				test.lose(x)
			})
			m := listenAsSystemd(t)
			p := m.begin(b, nil)
			m.until("READY=1")
			begun := time.Now()
			close(ready)
			m.until("STOPPING=1")
			notified := time.Now()
			if code := p.wait(); code != cli.ExitLost {
				t.Errorf("exit code %d, want %d", code, cli.ExitLost)
			}
			b.AwaitRelease()
			if took := time.Since(begun); took < grace-10*time.Millisecond {
				t.Errorf("ended after %v, %v after STOPPING=1, want a grace of %v", took, time.Since(notified), grace)
			}
			p.printed(t, "", "bakeryctl: lost \"x\": "+test.stderr+"\n")
		})
	}
}

// Without systemd the exit is the only notification.
func TestHold_LostWithoutSystemd_EndsImmediately(t *testing.T) {
	t.Parallel()
	b := serve(t, func(x *exchange) {
		x.Grace = 30 * time.Minute
		x.Grant(time.Hour)
		<-x.Confirmed
		x.Lose("host 3 was evicted")
	})
	p := begin(t, "hold", "--socket", b.Socket, "x")
	if code := p.wait(); code != cli.ExitLost {
		t.Errorf("exit code %d, want %d", code, cli.ExitLost)
	}
	// The loss may arrive before the confirmation, or before the hold begins.
	require.Contains(t, []string{
		"bakeryctl: lock \"x\": host 3 was evicted\n",
		"bakeryctl: not holding \"x\": lock lost: host 3 was evicted\n",
		"bakeryctl: lost \"x\": lock lost: host 3 was evicted\n",
	}, p.messages())
	b.AwaitRelease()
}

func TestHold_Watchdog_GetsKeepAlives(t *testing.T) {
	t.Parallel()
	grant, lose := make(chan struct{}), make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Wait(1, time.Minute)
		<-grant
		x.Grace = time.Minute
		x.Grant(time.Hour)
		<-lose
		x.Lose("evicted")
	})
	m := listenAsSystemd(t)
	p := m.begin(b, []string{"WATCHDOG_USEC=3000"})
	m.until("STATUS=waiting for x: 1 ahead")
	close(grant)
	m.until("READY=1")
	if beat := slices.Index(m.received, "WATCHDOG=1"); beat >= 0 && beat < slices.Index(m.received, "READY=1") {
		t.Errorf("keep-alive during the wait: %q", m.received)
	}
	for range 3 {
		m.received = nil
		m.until("WATCHDOG=1")
	}
	close(lose)
	m.until("STOPPING=1")
	m.received = nil
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != cli.ExitLost {
		t.Errorf("exit code %d, want %d", code, cli.ExitLost)
	}
	if err := m.conn.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := m.conn.Read(make([]byte, 4096)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("systemd received %d bytes after STOPPING=1, %v", n, err)
	}
}

// systemd does not read its socket.
func TestHold_SystemdBlocked_Ends(t *testing.T) {
	t.Parallel()
	m := listenAsSystemd(t)
	full, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for err == nil {
		if err := full.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err = full.Write([]byte("x"))
	}
	b := serve(t, func(x *exchange) {
		for ahead := range 20 {
			x.Wait(ahead, time.Minute)
		}
		x.Grace = time.Millisecond
		x.Grant(time.Hour)
		x.Lose("evicted")
	})
	p := m.begin(b, nil)
	if code := p.wait(); code != cli.ExitLost {
		t.Errorf("exit code %d, want %d", code, cli.ExitLost)
	}
	b.AwaitRelease()
}

func TestHold_SystemdUnreachable_Holds(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	b := serve(t, func(x *exchange) {
		close(held)
		holding(x)
	})
	none := &manager{t: t, socket: filepath.Join(t.TempDir(), "none")}
	p := none.begin(b, nil)
	within(t, held, "the request")
	eventually(t, "the message", func() bool { return p.messages() != "" })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != cli.ExitSignal+int(syscall.SIGTERM) && code != cli.ExitOK { // the grant may not have arrived yet
		t.Errorf("exit code %d", code)
	}
	p.printed(t, "", "bakeryctl: notify systemd: dial unixgram "+none.socket+": connect: no such file or directory\n")
}

func TestHoldExitCodes(t *testing.T) {
	t.Parallel()
	refused := func(code string) func(*exchange) {
		return func(x *exchange) { x.Refuse(code, "no", "maybe") }
	}
	const no = "bakeryctl: lock \"x\": no\nhint: maybe\n"
	const see = "\nhint: run bakeryctl hold --help\n"
	unasked := func(*exchange) { t.Error("asked for a lock") }
	tests := []struct {
		name   string
		script func(*exchange)
		args   []string
		env    string
		code   int
		stderr string
	}{
		{"busy", refused("busy"), []string{"-n", "x"}, "", 1, "bakeryctl: \"x\" is not free\n"},
		{"busy, quiet", refused("busy"), []string{"-qn", "x"}, "", 1, ""},
		{"late", refused("timeout"), []string{"-w", "1", "-E", "7", "x"}, "", 7, "bakeryctl: gave up waiting for \"x\" after 1 s\n"},
		{"unavailable", refused("unavailable"), []string{"x"}, "", 69, no},
		{"device", refused("device"), []string{"x"}, "", 66, no},
		{"invalid", refused("invalid"), []string{"x"}, "", 64, no},
		{"lease over", func(x *exchange) { x.Grant(0); <-x.Gone }, []string{"x"}, "", 75,
			"bakeryctl: not holding \"x\": lock lost: the lease ended without a renewal\n"},
		{"no name", unasked, nil, "", 64, "bakeryctl: hold: no lock NAME given\nhint: usage: bakeryctl hold [flags] NAME\n"},
		{"a command", unasked, []string{"x", "true"}, "", 64, "bakeryctl: unexpected argument \"true\": hold takes one lock and no command\n" +
			"hint: to run a command under a lock, use bakeryctl lock\n"},
		{"a bad name", unasked, []string{"a\nb"}, "", 64,
			"bakeryctl: lock name \"a\\nb\", want no control characters, found U+000A at byte 1: value not allowed" + see},
		{"both modes", unasked, []string{"-s", "-x", "x"}, "", 64, "bakeryctl: --shared and --exclusive exclude each other" + see},
		{"exit code", unasked, []string{"-E", "-1", "x"}, "", 64, "bakeryctl: -E, --conflict-exit-code \"-1\": want a whole number from 0 to 255" + see},
		{"watchdog", unasked, []string{"x"}, "WATCHDOG_USEC=soon", 64, "bakeryctl: read the watchdog timeout of systemd: error converting WATCHDOG_USEC: " +
			"strconv.Atoi: parsing \"soon\": invalid syntax\nhint: do not set WATCHDOG_USEC; systemd sets it from WatchdogSec= of the unit\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := serve(t, test.script)
			p := prepare(t, append([]string{"hold", "--socket", b.Socket}, test.args...)...)
			p.cmd.Env = append(p.cmd.Env, test.env)
			p.start()
			if code := p.wait(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			p.printed(t, "", test.stderr)
		})
	}
}

func TestHold_Flags_DetermineTheRequest(t *testing.T) {
	t.Parallel()
	asked := make(chan wanted, 1)
	b := serve(t, func(x *exchange) {
		asked <- x.Request
		x.Refuse("busy", "no", "")
	})
	p := begin(t, "hold", "--socket", b.Socket, "-q", "-s", "-w", "1.5", "-E", "0", "--", "-x y")
	if code := p.wait(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	p.printed(t, "", "")
	got := <-asked
	want := wanted{Name: "-x y", Mode: layout.Shared, TimeoutMS: 1500, PID: p.cmd.Process.Pid, Command: "bakeryctl hold -x y", Session: got.Session, Confirm: true}
	if got != want {
		t.Errorf("request %+v, want %+v", got, want)
	}
}

func TestHold_Terminal_ShowsTheQueue(t *testing.T) {
	t.Parallel()
	first := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Wait(2, time.Minute)
		<-first
		holding(x)
	})
	x := onTerminal(t, "hold", "--socket", b.Socket, "x")
	const clear = "\r\x1b[K"
	x.await(clear + `bakeryctl: waiting for "x": 2 ahead`)
	close(first)
	x.await("2 ahead" + clear)
	x.press("\x03")
	if code := x.wait(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	b.AwaitRelease()
}
