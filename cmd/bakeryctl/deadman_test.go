package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/test/clienttest"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// These tests measure no time themselves. They assert the order of events, and the times that the
// command and bakeryctl report.

func TestLock_BakerydRestarts_CommandContinues(t *testing.T) {
	t.Parallel()
	lease := standstill.Lease
	script := func(x *exchange) {
		x.Grace = lease / 6
		x.Hold(lease)
	}
	b := serve(t, script)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ready; read x; echo $x")
	p.expect("ready")
	for range 2 {
		before := b.Requests()
		b.Kill()
		b.Start(script)
		eventually(t, "the wrapper to come back", func() bool { return b.Requests() > before })
		leaseEnds(t, lease) // as of before the restart
	}
	p.write("still here")
	p.expect("still here")
	p.exits(0)
	require.Empty(t, p.messages())
	b.AwaitRelease()
}

func TestLock_BakerydIsGone_CommandIsStoppedInTime(t *testing.T) {
	t.Parallel()
	lease, grace := standstill.Outlives(12*time.Second), standstill.Outlives(6*time.Second)
	for _, test := range []struct {
		name   string
		broken bool // the connection breaks, which is reported first
		after  func(b *clienttest.Bakeryd)
	}{
		{"that died", true, (*clienttest.Bakeryd).Kill},
		{"that stands still", false, func(*clienttest.Bakeryd) {}},
		{"whose successor stands still", true, func(b *clienttest.Bakeryd) {
			b.Kill()
			b.Start(func(x *exchange) { <-x.Gone })
		}},
		{"whose successor does not join", true, func(b *clienttest.Bakeryd) {
			b.Kill()
			b.Start(func(x *exchange) { x.Refuse("unavailable", "still joining", "") })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := serve(t, func(x *exchange) {
				x.Grace = grace
				x.Grant(lease)
				<-x.Gone
			})
			dir := t.TempDir()
			p := begin(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", family+
				`trap "echo TERM >>log" TERM; while :; do sleep 0.1; done`, dir)
			members := pids(t, dir, familyMembers...)
			test.after(b)
			eventually(t, "SIGTERM", func() bool { return read(t, dir, "log") != "" })
			require.True(t, alive(p.cmd.Process.Pid) && alive(members["stubborn"]), "killed together with SIGTERM")
			eventually(t, "processes that handle SIGTERM to end", func() bool { return !alive(members["child"]) && !alive(members["orphan"]) })
			p.exits(cli.ExitLost)
			require.Equal(t, "TERM\n", read(t, dir, "log"))
			require.Empty(t, in(t, dir), "processes remain")
			lines := strings.Split(p.messages(), "\n")
			gone := strings.HasPrefix(lines[0], "bakeryctl: bakeryd is gone; ")
			if gone != test.broken && !standstill.Expected() { // a client that was stopped reconnects
				t.Errorf("standard error %q, want a message that bakeryd is gone: %v", p.messages(), test.broken)
			}
			if gone {
				lines = lines[1:]
			}
			if len(lines) != 4 || !strings.HasPrefix(lines[0], "bakeryctl: stopping the command under \"x\": the lease ends in ") ||
				!strings.HasPrefix(lines[1], "hint: see the log of bakeryd") ||
				lines[2] != "bakeryctl: killed the remaining processes of the command under \"x\": they did not stop in time" {
				t.Errorf("standard error %q", p.messages())
			}
		})
	}
}

func TestLock_BakerydIsGone_PrintsAMessage(t *testing.T) {
	t.Parallel()
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ready; read x")
	p.expect("ready")
	b.Kill()
	until := time.Now().Add(time.Hour)
	eventually(t, "a message", func() bool { return strings.HasSuffix(p.messages(), "\n") })
	b.Start(holding)
	eventually(t, "the wrapper to come back", func() bool { return b.Requests() == 2 })
	p.write("")
	p.exits(0)
	message, at := "bakeryctl: bakeryd is gone; \"x\" is held until %s at most unless it comes back\n", until
	for _, slack := range []time.Duration{0, -time.Second, -2 * time.Second, time.Second} {
		if p.messages() == strings.Replace(message, "%s", at.Add(slack).Format(time.TimeOnly), 1) {
			return
		}
	}
	t.Errorf("standard error %q, want %q of about %s", p.messages(), message, at.Format(time.TimeOnly))
}

func TestLock_RenewalAfterTheWarning_CommandIsStopped(t *testing.T) {
	t.Parallel()
	lease := 2 * standstill.Lease
	asked := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Grace = lease / 2
		x.Grant(lease)
		select {
		case <-asked:
		case <-x.Gone:
		}
		for {
			select {
			case <-x.Gone:
				return
			case <-time.After(lease / 20):
				x.Renew(lease)
			}
		}
	})
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", stubborn)
	pid := p.pid()
	p.expect("TERM")
	close(asked)
	require.True(t, b.Held(), "released while the command runs")
	p.exits(cli.ExitLost)
	require.False(t, alive(pid), "the command runs")
	require.Contains(t, p.messages(), "was not renewed\nhint: see the log of bakeryd, and dmesg for the device\n")
	require.Contains(t, p.messages(), "did not stop in time\n")
	b.AwaitRelease()
}

func TestLock_SuspendedBeyondTheLease_CommandIsStopped(t *testing.T) {
	t.Parallel()
	lease := standstill.Lease
	b := serve(t, func(x *exchange) {
		x.Grace = lease / 6
		x.Hold(lease)
	})
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", stubborn)
	pid := p.pid()
	p.signal(syscall.SIGSTOP)
	b.Kill()
	leaseEnds(t, lease)
	p.signal(syscall.SIGCONT)
	p.exits(cli.ExitLost)
	require.False(t, alive(pid), "the command runs")
	require.Contains(t, p.messages(), "the lease ended without a renewal\n")
}

func TestLock_WrapperAndBakerydKilled_CommandKeepsTheLock(t *testing.T) {
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ready; read x; echo $x")
	p.expect("ready")
	p.signal(syscall.SIGKILL)
	p.wait()
	b.Kill()
	require.True(t, b.Witnessed(), "the lock is not held")
	p.write("continue")
	p.expect("continue")
	eventually(t, "the witness to be closed", func() bool { return !b.Witnessed() })
}

func TestLock_CommandCleansUp_IsNotInterrupted(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	b := loses(t, time.Hour, running)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", `exec 2>/dev/null
		trap 'sh -c "sleep 1.5; echo clean"; exit' TERM; echo ready; while :; do sleep 0.01; done`)
	p.expect("ready")
	close(running)
	require.Equal(t, "clean", p.line())
	p.exits(cli.ExitLost)
}
