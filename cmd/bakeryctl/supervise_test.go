package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// stubborn prints its process id, ignores SIGTERM but prints it, and continues. Its standard error
// is closed, because the shell reports there that its sleep was terminated.
const stubborn = `exec 2>/dev/null; trap "echo TERM" TERM; echo $$; while :; do sleep 0.01; done`

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool { return !strings.Contains("ZX", state(pid)) }

// state returns the state of a process as in proc(5): T is stopped, X does not exist.
func state(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, found := strings.Cut(string(stat), ") ")
	if err != nil || !found {
		return "X"
	}
	return state[:1]
}

func (p *wrapper) pid() int {
	p.t.Helper()
	pid, err := strconv.Atoi(p.line())
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

func TestLock_Lost_StopsTheCommand(t *testing.T) {
	t.Parallel()
	const (
		stopping = "bakeryctl: stopping the command under \"x\": lock lost: "
		killed   = "bakeryctl: killed the remaining processes of the command under \"x\": they did not stop in time\n"
	)
	lost := func(x *exchange) {
		x.Send(`{"event":"lost","message":"host 3 was evicted"}`)
		<-x.Gone
	}
	tests := []struct {
		name    string
		lease   time.Duration
		then    func(x *exchange)
		command string
		state   string // of the command before the loss; empty: any
		stdout  string // after the process id
		stderr  string
	}{
		{"kills a command that ignores SIGTERM at the end of the lease", standstill.Lease, lost,
			stubborn, "", "TERM\n", stopping + "host 3 was evicted\n" + killed},
		{"ends with the command that handles SIGTERM", time.Hour, lost,
			`exec 2>/dev/null; trap "echo ending; exit 0" TERM; echo $$; while :; do sleep 0.01; done`, "", "ending\n", stopping + "host 3 was evicted\n"},
		{"wakes a command that was stopped", time.Hour, lost,
			`echo $$; kill -STOP $$; sleep 1000`, "T", "", stopping + "host 3 was evicted\n"},
		{"kills immediately if the lease is over", standstill.Lease, func(x *exchange) { <-x.Gone },
			stubborn, "", "", stopping + "the lease ended without a renewal\n" + killed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			running := make(chan struct{})
			b := serve(t, func(x *exchange) {
				x.Grant(test.lease)
				select {
				case <-running:
					test.then(x)
				case <-x.Gone:
				}
			})
			p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", test.command)
			pid := p.pid()
			if test.state != "" {
				eventually(t, "the command to be in state "+test.state, func() bool { return state(pid) == test.state })
			}
			close(running)
			if code := p.wait(); code != cli.ExitLost {
				t.Errorf("exit code %d, want %d", code, cli.ExitLost)
			}
			if alive(pid) {
				t.Error("the command still runs")
			}
			if got := p.rest(); got != test.stdout {
				t.Errorf("standard output %q, want %q", got, test.stdout)
			}
			if got := p.messages(); got != test.stderr {
				t.Errorf("standard error %q, want %q", got, test.stderr)
			}
		})
	}
}

func TestLock_LostWithStderrClosed_StopsTheCommand(t *testing.T) {
	running := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Grant(time.Hour)
		<-running
		x.Lose("host 3 was evicted")
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo $$; exec sleep 1000")
	p.cmd.Stderr = w
	p.follow()
	pid := p.pid()
	_, _ = r.Close(), w.Close() // from here on, writing to standard error fails and raises SIGPIPE
	close(running)
	if code := p.wait(); code != cli.ExitLost || alive(pid) {
		t.Errorf("exit code %d, want %d; command runs: %v", code, cli.ExitLost, alive(pid))
	}
}

func TestLock_LostWithStderrBlocked_StopsTheCommand(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Grant(time.Hour)
		<-running
		x.Lose("host 3 was evicted")
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c",
		"dd if=/dev/zero bs=4096 count=16 status=none >&2; echo $$; exec sleep 1000")
	p.cmd.Stderr = w
	p.follow()
	pid := p.pid()
	close(running)
	if code := p.wait(); code != cli.ExitLost || alive(pid) {
		t.Errorf("exit code %d, want %d; command runs: %v", code, cli.ExitLost, alive(pid))
	}
}

func TestLock_SuspendedWhileRenewed_KeepsTheLock(t *testing.T) {
	t.Parallel()
	lease := standstill.Lease
	b := serve(t, func(x *exchange) {
		x.Grant(lease)
		for {
			select {
			case <-x.Gone:
				return
			case <-time.After(lease / 20):
				x.Renew(lease)
			}
		}
	})
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ready; read x; echo $x")
	p.expect("ready")
	p.signal(syscall.SIGSTOP)
	leaseEnds(t, lease*3/2) // as the wrapper knows it, plus the time after which it detects the stop
	p.signal(syscall.SIGCONT)
	leaseEnds(t, lease) // a wrong timer would fire now
	p.write("still here")
	p.expect("still here")
	if code := p.wait(); code != 0 || p.messages() != "" {
		t.Errorf("exit code %d, standard error %q", code, p.messages())
	}
}

func TestLock_WrapperKilled_CommandKeepsTheLock(t *testing.T) {
	b := serve(t, holding)
	// Scripts may use the low descriptors.
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c",
		"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; echo ready; read x; echo $x")
	p.expect("ready")
	p.signal(syscall.SIGKILL)
	p.wait()
	if !b.Held() {
		t.Fatal("released while the command runs")
	}
	p.write("go on")
	p.expect("go on")
	b.AwaitRelease()
}

func TestLock_WrapperWithCloseKilled_Releases(t *testing.T) {
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "--close", "x", "--", "sh", "-c", "echo ready; read x; echo $x")
	p.expect("ready")
	p.signal(syscall.SIGKILL)
	b.AwaitRelease()
	p.write("go on")
	p.expect("go on")
}

func TestLock_BackgroundDescendant_KeepsTheLock(t *testing.T) {
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "sleep 1000 >/dev/null & echo $!")
	pid := p.pid()
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !b.Held() || !alive(pid) {
		t.Fatalf("held: %v, descendant runs: %v", b.Held(), alive(pid))
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.AwaitRelease()
}

// No bakeryd takes the processes over before the lease ends.
func TestSupervisor_CommandLeavesProcessesWhileBakerydIsGone_StopsThem(t *testing.T) {
	t.Parallel()
	lease := standstill.Lease
	b := serve(t, func(x *exchange) {
		x.Grace = lease / 6
		x.Grant(lease)
		<-x.Gone
	})
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "sleep 1000 >/dev/null & echo $!; read x")
	pid := p.pid()
	b.Kill()
	p.write("")
	if code := p.wait(); code != cli.ExitLost || alive(pid) {
		t.Errorf("exit code %d, want %d; descendant runs: %v; standard error %q", code, cli.ExitLost, alive(pid), p.messages())
	}
}

func TestLock_BackgroundDescendantWithClose_DoesNotKeepTheLock(t *testing.T) {
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "-o", "x", "--", "sh", "-c", "sleep 1000 >/dev/null & echo $!")
	pid := p.pid()
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.AwaitRelease()
	if !alive(pid) {
		t.Error("the descendant was killed")
	}
}

// The processes have just been sent SIGKILL.
func TestSupervisor_ContinuedLongAfterTheLease_ReportsNoProcessThatEnds(t *testing.T) {
	t.Parallel()
	lease := standstill.Lease
	b := serve(t, func(x *exchange) {
		if x.Nth > 1 {
			x.Refuse("unavailable", "joining", "") // as after a restart
			return
		}
		x.Grant(lease)
		<-x.Gone
	})
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ran; exec sleep 1000")
	p.expect("ran")
	p.signal(syscall.SIGSTOP)
	leaseEnds(t, lease+2*supervise.RemainWithin)
	p.signal(syscall.SIGCONT)
	if code := p.wait(); code != cli.ExitLost {
		t.Errorf("exit code %d, want %d", code, cli.ExitLost)
	}
	if strings.Contains(p.messages(), "did not end by SIGKILL") {
		t.Errorf("standard error %q", p.messages())
	}
}
