package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/test/standstill"
)

func TestOnLost(t *testing.T) {
	t.Parallel()
	const (
		stopping = "bakeryctl: stopping the command under \"x\": lock lost: host 3 was evicted\n"
		killed   = "bakeryctl: killed the remaining processes of the command under \"x\": they did not stop in time\n"
	)
	for _, test := range []struct {
		name, script string
		lease        time.Duration
		command      string
		stdout       string
		stderr       string
	}{
		{"runs in addition to the signal", `echo "$BAKERY_LOCK $BAKERY_TOKEN $BAKERY_HOST_ID"; echo "to say" >&2`, time.Hour,
			"exec sleep 1000", "x " + token.String() + " 3\n", stopping + "to say\n"},
		{"gets the time left", `test "$BAKERY_DEADLINE_MS" -gt 3500000 && test "$BAKERY_DEADLINE_MS" -le 3600000 && echo so`, time.Hour,
			"exec sleep 1000", "so\n", stopping},
		{"may fail", "exit 3", time.Hour, "exec sleep 1000", "", stopping},
		{"is killed at the deadline with the command", `trap "" TERM; echo on; sleep 1000; echo off`, standstill.Lease,
			`trap "" TERM; exec sleep 1000`, "on\n", stopping + killed},
		{"is killed at the deadline after the command", `trap "" TERM; echo on; sleep 1000; echo off`, standstill.Lease,
			"exec sleep 1000", "on\n", stopping},
		{"does not hold the lock", `for fd in /proc/self/fd/*; do case $(readlink $fd) in *.fifo|socket:*) echo $fd; esac; done`, time.Hour,
			"exec sleep 1000", "", stopping},
		{"has a process group of its own", `read -r _ _ _ _ group _ </proc/$$/stat; test $group = $$ && echo own`, time.Hour,
			"exec sleep 1000", "own\n", stopping},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			running := make(chan struct{})
			b := loses(t, test.lease, running)
			dir := t.TempDir()
			p := begin(t, "lock", "--socket", b.Socket, "--on-lost", "cd "+dir+"; "+test.script, "x", "--",
				"sh", "-c", "exec 2>/dev/null; cd "+dir+"; echo $$ >command; "+test.command)
			pids(t, dir, "command")
			close(running)
			p.exits(cli.ExitLost)
			require.Equal(t, test.stdout, p.content(p.stdout))
			// The script and bakeryctl write at the same time.
			if got := p.messages(); len(got) != len(test.stderr) || !strings.HasPrefix(got, stopping) && !strings.HasSuffix(got, stopping) {
				t.Errorf("standard error %q, want %q", got, test.stderr)
			}
			eventually(t, "what was killed to be gone", func() bool { return len(in(t, dir)) == 0 })
		})
	}
}

func TestOnLost_ScriptRuns_LockIsReleased(t *testing.T) {
	running := make(chan struct{})
	b := loses(t, time.Hour, running)
	dir := t.TempDir()
	p := follow(t, "lock", "--socket", b.Socket, "--on-lost", `cd `+dir+`; echo $$ >handler; sleep 1000`, "x", "--",
		"sh", "-c", "echo ready; exec sleep 1000")
	p.expect("ready")
	close(running)
	handler := pids(t, dir, "handler")["handler"]
	b.AwaitRelease()
	require.True(t, alive(handler), "the script was killed before the deadline")
	for _, pid := range in(t, dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.exits(cli.ExitLost)
}

func TestOnLost_NoLoss_DoesNotRun(t *testing.T) {
	for _, test := range []struct {
		name    string
		command string
		code    int
	}{
		{"when the command has ended", "exit 7", 7},
		{"when the command is killed", "kill -KILL $$", 137},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := serve(t, holding)
			p := begin(t, "lock", "--socket", b.Socket, "--on-lost", "echo ran", "x", "--", "sh", "-c", test.command)
			p.exits(test.code)
			p.printed(t, "", "")
		})
	}
}

func TestOnLost_Warning_RunsOnce(t *testing.T) {
	t.Parallel()
	lease, grace := standstill.Outlives(8*time.Second), standstill.Outlives(4*time.Second)
	b := serve(t, func(x *exchange) {
		x.Grace = grace
		x.Grant(lease)
		<-x.Gone
	})
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	// The command gets SIGTERM, then the script runs, and both are killed a deadline later.
	p := begin(t, "lock", "--socket", b.Socket, "--on-lost", `echo "lost $BAKERY_DEADLINE_MS" >>`+log, "x", "--",
		"sh", "-c", "exec 2>/dev/null; trap 'echo TERM >>"+log+"' TERM; while :; do sleep 0.01; done")
	p.exits(cli.ExitLost)
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 2, "log %q, want one line of the command and one of the script", text)
	left := -1
	for _, line := range lines {
		if ms, found := strings.CutPrefix(line, "lost "); found {
			left, _ = strconv.Atoi(ms)
		}
	}
	if left <= 0 || left > int(grace.Milliseconds()) {
		t.Errorf("log %q, want BAKERY_DEADLINE_MS of 1 to %d", text, grace.Milliseconds())
	}
}
