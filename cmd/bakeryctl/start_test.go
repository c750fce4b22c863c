package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// stoppedIn blocks until the wrapper or its stub is stopped, and returns its pid.
func stoppedIn(t *testing.T, p *wrapper) (pid int) {
	t.Helper()
	eventually(t, "a process to stop", func() bool {
		table, err := process.Table()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range table {
			if (q.PID == p.cmd.Process.Pid || q.Parent == p.cmd.Process.Pid) && q.State == 'T' {
				pid = q.PID
				return true
			}
		}
		return false
	})
	return pid
}

// A process is stopped at any step between grant and execve, and continues after the lease.
func TestStart_StoppedAtAnyStep_DoesNotBeginLate(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"granted", "ordering", "ordered", "received", "checked"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			lease := standstill.Lease
			b := serve(t, func(x *exchange) {
				if x.Nth > 1 {
					x.Refuse("unavailable", "joining", "") // as after a restart
					return
				}
				x.Grace = lease / 6
				x.Grant(lease)
				<-x.Gone
			})
			ran := filepath.Join(t.TempDir(), "ran")
			p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", `echo ran >"$0"; exec sleep 1000`, ran)
			p.cmd.Env = append(p.cmd.Env, stopAt+"="+step)
			p.start()
			pid := stoppedIn(t, p)
			leaseEnds(t, lease)
			if step == "checked" { // only the wrapper stops it then, and may have been stopped with this test
				eventually(t, "the stub to be killed", func() bool { return state(pid) != "T" })
			}
			_ = syscall.Kill(pid, syscall.SIGCONT) // the wrapper may have killed its stub
			if code := p.wait(); code != cli.ExitLost {
				t.Errorf("exit code %d, want %d; standard error %q", code, cli.ExitLost, p.messages())
			}
			if _, err := os.Stat(ran); err == nil && step != "ordered" {
				t.Error("the command ran")
			}
			b.AwaitRelease()
		})
	}
}

// bakeryd has ended when the wrapper continues.
func TestStart_StoppedBeforeItReadsTheGrant_DoesNotBeginLate(t *testing.T) {
	t.Parallel()
	lease := standstill.Outlives(time.Second)
	granted := make(chan int, 1)
	b := serve(t, func(x *exchange) {
		x.Wait(1, lease)
		_ = syscall.Kill(x.PID, syscall.SIGSTOP)
		eventually(t, "the wrapper to stop", func() bool { return state(x.PID) == "T" })
		x.Grant(lease)
		granted <- x.PID
		<-x.Gone
	})
	ran := filepath.Join(t.TempDir(), "ran")
	p := begin(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", `echo ran >"$0"`, ran)
	pid := <-granted
	leaseEnds(t, lease)
	b.Kill()
	_ = syscall.Kill(pid, syscall.SIGCONT)
	if code := p.wait(); code == 0 {
		t.Error("exit code 0")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command ran")
	}
}

// bakeryd was killed after the grant.
func TestStart_WitnessWithoutReaderUntilTheLeaseEnds_ExitsLost(t *testing.T) {
	t.Parallel()
	b := serve(t, func(x *exchange) {
		x.Grant(standstill.Outlives(2 * time.Second))
		<-x.Gone
	})
	p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
	p.cmd.Env = append(p.cmd.Env, stopAt+"=granted")
	p.start()
	pid := stoppedIn(t, p)
	fifos, err := filepath.Glob(filepath.Join(filepath.Dir(b.Socket), "*.fifo"))
	if err != nil || len(fifos) != 1 {
		t.Fatalf("FIFOs %v, %v", fifos, err)
	}
	if err := errors.Join(os.Remove(fifos[0]), syscall.Mkfifo(fifos[0], 0o600)); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGCONT)
	if code := p.wait(); code != cli.ExitLost {
		t.Errorf("exit code %d, want %d; standard error %q", code, cli.ExitLost, p.messages())
	}
}

// The lease that the stub knows is over, but not the hold.
func TestStart_StoppedWhileTheLeaseIsRenewed_Begins(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"granted", "ordering", "ordered", "received"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			lease := standstill.Lease
			b := serve(t, func(x *exchange) { x.Hold(lease) })
			p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
			p.cmd.Env = append(p.cmd.Env, stopAt+"="+step)
			p.start()
			pid := stoppedIn(t, p)
			leaseEnds(t, lease*3/2) // as the stub knows it, plus the time after which it detects the stop
			_ = syscall.Kill(pid, syscall.SIGCONT)
			if code := p.wait(); code == cli.ExitLost && standstill.Expected() {
				return // it was stopped again, for longer than it may ask bakeryd
			}
			p.exits(0)
			require.Equal(t, "ran\n", p.content(p.stdout))
		})
	}
}

// Ctrl-C arrives as the command starts.
func TestStart_SignalEndsTheStubAfterTheGrant_ExitsAsTheCommand(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"ordering", "ordered"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := serve(t, holding)
			p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "sleep", "1000")
			p.cmd.Env = append(p.cmd.Env, stopAt+"="+step)
			p.start()
			pid := stoppedIn(t, p)
			table, err := process.Table()
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range table {
				if q.Parent == pid {
					_ = syscall.Kill(q.PID, syscall.SIGINT)
					eventually(t, "the stub to end", func() bool { return state(q.PID) == "Z" || state(q.PID) == "X" })
				}
			}
			_ = syscall.Kill(pid, syscall.SIGCONT)
			if code := p.wait(); code != 128+int(syscall.SIGINT) {
				t.Errorf("exit code %d, want 130; standard error %q", code, p.messages())
			}
			b.AwaitRelease()
		})
	}
}

// A signal to the process group, which the wrapper ignores, can kill the stub.
func TestStart_StubKilledWhileWaiting_IsReplaced(t *testing.T) {
	grant := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Wait(1, time.Hour)
		<-grant
		x.Grant(time.Hour)
		<-x.Gone
	})
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
	var stub int
	eventually(t, "the stub", func() bool {
		table, err := process.Table()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range table {
			text, _ := os.ReadFile("/proc/" + strconv.Itoa(q.PID) + "/cmdline")
			if q.Parent == p.cmd.Process.Pid && strings.HasPrefix(string(text), supervise.AsStub+"\x00") {
				stub = q.PID
			}
		}
		return stub != 0
	})
	if err := syscall.Kill(stub, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stub to be reaped", func() bool { return state(stub) == "X" })
	close(grant)
	p.expect("ran")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, standard error %q", code, p.messages())
	}
}
