package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
)

// echoing prints the names of the signals it gets, and ends with its standard input.
const echoing = `for s in HUP INT QUIT TERM USR1 USR2 CONT; do trap "echo $s" $s; done; echo ready
	while :; do sleep 0.01; done`

func TestLock_Signals_ReachTheCommand(t *testing.T) {
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", echoing)
	p.expect("ready")
	for _, s := range signals.Forwarded {
		p.signal(s)
		p.expect(strings.TrimPrefix(signalName(s), "SIG"))
	}
	// Real-time signals have no names.
	p = follow(t, "lock", "--socket", b.Socket, "x", "--", "bash", "-c", `trap "echo real" RTMIN+3; echo ready; while :; do sleep 0.01; done`)
	p.expect("ready")
	p.signal(syscall.Signal(34 + 3))
	p.expect("real")
	// The exit code shows the signal that killed the command.
	p = follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ready; exec sleep 1000")
	p.expect("ready")
	p.signal(syscall.SIGTERM)
	p.exits(143)
	require.Empty(t, p.messages())
}

// TestLock_RealTimeSignalAsTheCommandStarts_ReachesIt, and once, although the wrapper receives
// real-time signals only later.
func TestLock_RealTimeSignalAsTheCommandStarts_ReachesIt(t *testing.T) {
	b := serve(t, holding)
	for range 5 {
		// bash forgets a signal that arrives while it runs the trap of an earlier one.
		p := follow(t, "lock", "--socket", b.Socket, "x", "--", "bash", "-c", `trap got=real RTMIN+3; kill -RTMIN+3 $PPID
			while read -t 0.01 x; [ $? != 1 ]; do [ -z "$got" ] || { got=; echo real; }; done`)
		p.expect("real")
		p.signal(syscall.Signal(34 + 3))
		p.expect("real")
		require.NoError(t, p.stdin.Close())
		require.Empty(t, p.rest())
		p.exits(0)
	}
}

// TestLock_RealTimeSignalWhileWaiting_IsNotForwarded as signals that end no wait are not.
func TestLock_RealTimeSignalWhileWaiting_IsNotForwarded(t *testing.T) {
	waiting, grant := make(chan int, 1), make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Send(`{"event":"waiting","ahead":1,"queued":1}`)
		waiting <- x.PID
		<-grant
		holding(x)
	})
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "bash", "-c", `trap "echo real" RTMIN+3; echo ready; while read -t 0.01 x; [ $? != 1 ]; do :; done`)
	require.NoError(t, syscall.Kill(<-waiting, syscall.Signal(34+3)))
	close(grant)
	p.expect("ready")
	p.signal(syscall.SIGTERM)
	require.Empty(t, p.rest())
	p.exits(143)
}

func signalName(s syscall.Signal) string {
	names := map[syscall.Signal]string{
		syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGTERM: "SIGTERM",
		syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2", syscall.SIGCONT: "SIGCONT",
	}
	return names[s]
}

func TestLock_SignalWhileWaiting_LeavesTheQueue(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		t.Run(signalName(s), func(t *testing.T) {
			waiting := make(chan struct{})
			b := serve(t, func(x *exchange) {
				x.Send(`{"event":"waiting","ahead":2,"queued":1}`)
				close(waiting)
				<-x.Gone
			})
			p := begin(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
			within(t, waiting, "the request")
			p.signal(syscall.SIGUSR1) // for the command, which does not run yet
			p.signal(s)
			p.exits(cli.ExitSignal + int(s))
			p.printed(t, "", "")
			b.AwaitRelease()
		})
	}
}

// dispositions parses the lines of /proc/self/status about blocked and ignored signals, as cut by
// grep.
func dispositions(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		found[name] = value
	}
	return found
}

func TestLock_Command_InheritsDispositions(t *testing.T) {
	const show = "exec grep -E ^Sig(Blk|Ign): /proc/self/status"
	bare, err := exec.Command("sh", "-c", strings.Replace(show, "^Sig(Blk|Ign):", "'^Sig(Blk|Ign):'", 1)).Output()
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	for _, ignored := range []string{"", "HUP", "INT", "HUP INT"} {
		t.Run(ignored, func(t *testing.T) {
			b := serve(t, holding)
			trap := ""
			want := dispositions(string(bare))["SigIgn"]
			if ignored != "" {
				trap = fmt.Sprintf("trap '' %s; ", ignored)
				under, err := exec.Command("sh", "-c", trap+"grep -E '^Sig(Blk|Ign):' /proc/self/status").Output()
				require.NoError(t, err)
				want = dispositions(string(under))["SigIgn"]
			}
			p := prepare(t)
			p.cmd.Path = "/bin/bash"
			p.cmd.Args = []string{"bash", "-c", trap + `exec -a ` + asItself + ` "$0" "$@"`, exe,
				"lock", "--socket", b.Socket, "x", "--", "grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"}
			p.start()
			p.exits(0)
			got := dispositions(p.content(p.stdout))
			if got["SigIgn"] != want || got["SigBlk"] != dispositions(string(bare))["SigBlk"] {
				t.Errorf("%v, want SigIgn %s and SigBlk as in %s", got, want, bare)
			}
		})
	}
}

func TestLock_Nohup_SurvivesHangup(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	waiting, grant := make(chan struct{}), make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Send(`{"event":"waiting","ahead":2,"queued":1}`)
		close(waiting)
		<-grant
		x.Grant(time.Hour)
		<-x.Gone
	})
	p := prepare(t)
	p.cmd.Path = "/bin/bash"
	p.cmd.Args = []string{"bash", "-c", `trap "" HUP; exec -a ` + asItself + ` "$0" "$@"`, exe,
		"lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ready; read x; echo $x"}
	p.follow()
	within(t, waiting, "the request")
	p.signal(syscall.SIGHUP)
	close(grant)
	p.expect("ready")
	p.signal(syscall.SIGHUP)
	p.write("still here")
	p.expect("still here")
	p.exits(0)
}

func TestLock_ErrorOutputBlocked_CanBeInterrupted(t *testing.T) {
	refused := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Send(`{"event":"refused","code":"full","message":"the lock directory is full"}`)
		<-x.Gone
		close(refused)
	})
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	room, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	require.NoError(t, err)
	if _, err := w.Write(make([]byte, room)); err != nil {
		t.Fatal(err)
	}
	p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "true")
	p.cmd.Stderr = w
	p.start()
	within(t, refused, "the refusal to be read")
	eventually(t, "it to end", func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails after it has ended
		return supervise.IsClosed(p.ended)
	})
	// The first signal may have been consumed by the wait.
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signal() != syscall.SIGTERM && status.ExitStatus() != cli.ExitSignal+int(syscall.SIGTERM) {
		t.Errorf("ended by %v", p.cmd.ProcessState)
	}
}
