package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// asking returns a bakeryd that passes requests on to the holder.
func asking(t *testing.T) (b *fakeBakeryd, ask func(host int, name, message string)) {
	t.Helper()
	type wish struct {
		host          int
		name, message string
	}
	wishes := make(chan wish, 16)
	b = serve(t, func(x *exchange) {
		if !x.Requests {
			t.Error("the client did not ask for requests")
		}
		x.Grant(time.Hour)
		for {
			select {
			case w := <-wishes:
				x.Ask(w.host, w.name, w.message)
			case <-x.Gone:
				return
			}
		}
	})
	return b, func(host int, name, message string) { wishes <- wish{host, name, message} }
}

func TestOnRequest_Signal_IsSent(t *testing.T) {
	t.Parallel()
	b, ask := asking(t)
	// Only the command gets the signal, not its children.
	p := follow(t, "lock", "--socket", b.Socket, "--on-request", "USR1", "x", "--", "sh", "-c",
		`(trap "echo child" USR1; while :; do sleep 0.01; done) & trap "kill -KILL $!; exit 7" TERM
		trap "echo USR1" USR1; echo ready; while :; do sleep 0.01; done`)
	p.expect("ready")
	ask(2, "db2", "reboot")
	p.expect("USR1")
	ask(4, "", "")
	p.expect("USR1")
	p.signal(syscall.SIGTERM)
	p.exits(7)
	if got, want := p.messages(), "bakeryctl: sending SIGUSR1 to the command under \"x\": host 2 (db2) asks for it: reboot\n"+
		"bakeryctl: sending SIGUSR1 to the command under \"x\": host 4 asks for it\n"; got != want {
		t.Errorf("standard error %q, want %q", got, want)
	}
	require.Empty(t, p.rest())
}

func TestOnRequest_SIGTERM_EndsTheCommand(t *testing.T) {
	b, ask := asking(t)
	p := follow(t, "lock", "--socket", b.Socket, "--on-request", "15", "x", "--", "sh", "-c", "echo ready; exec sleep 1000")
	p.expect("ready")
	ask(2, "db\u202e2", "\u202eoops")
	p.exits(143)
	require.Equal(t, `bakeryctl: sending SIGTERM to the command under "x": host 2 ("db\u202e2") asks for it: "\u202eoops"`+"\n", p.messages())
	b.AwaitRelease()
}

func TestOnRequest_Script_RunsForEachRequest(t *testing.T) {
	t.Parallel()
	b, ask := asking(t)
	dir := t.TempDir()
	// Scripts run one at a time: each waits for its file.
	script := `cd ` + dir + `; test ! -e busy || echo together; touch busy
		echo "$BAKERY_LOCK $BAKERY_TOKEN $BAKERY_REQUEST_HOST <$BAKERY_REQUEST_HOST_NAME> <$BAKERY_REQUEST_MESSAGE>"
		for fd in /proc/self/fd/*; do case $(readlink $fd) in *.fifo|socket:*) echo "holds $fd"; esac; done
		while [ ! -e go$BAKERY_REQUEST_HOST ]; do sleep 0.01; done; rm busy`
	p := follow(t, "lock", "--socket", b.Socket, "--on-request", script, "x", "--", "sh", "-c",
		"echo ready; cd "+dir+"; while [ ! -e end ]; do sleep 0.01; done")
	p.expect("ready")
	touch := func(name string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	ask(2, "db2", `$(reboot) "now"`)
	ask(5, "", "")
	p.expect("x " + token.String() + ` 2 <db2> <$(reboot) "now">`)
	touch("go2")
	p.expect("x " + token.String() + " 5 <> <>")
	touch("go5")
	eventually(t, "the second script to end", func() bool {
		_, err := os.Stat(filepath.Join(dir, "busy"))
		return err != nil
	})
	touch("end")
	p.exits(0)
	require.Empty(t, p.rest())
	require.Empty(t, p.messages())
}

// The script must end with the command, and does not keep the lock.
func TestOnRequest_CommandEnds_ScriptIsStopped(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"at once": "echo on; exec sleep 1000",
		"by kill": `trap "" TERM; echo on; exec sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, ask := asking(t)
			dir := t.TempDir()
			p := follow(t, "lock", "--socket", b.Socket, "--on-request", "exec 2>/dev/null; cd "+dir+"; "+script, "x", "--",
				"sh", "-c", "echo ready; read x; exit 3")
			p.expect("ready")
			ask(2, "db2", "")
			p.expect("on")
			p.write("go")
			p.exits(3)
			eventually(t, "what was killed to be gone", func() bool { return len(in(t, dir)) == 0 })
			b.AwaitRelease()
		})
	}
}

// The script is stopped as all processes of bakeryctl are.
func TestOnRequest_LockLost_ScriptIsStopped(t *testing.T) {
	t.Parallel()
	lose := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Grant(time.Hour)
		x.Ask(2, "db2", "")
		<-lose
		x.Lose("host 3 was evicted")
	})
	dir := t.TempDir()
	p := follow(t, "lock", "--socket", b.Socket, "--on-request", "cd "+dir+"; echo on; exec sleep 1000", "x", "--",
		"sh", "-c", "exec sleep 1000")
	p.expect("on")
	close(lose)
	p.exits(cli.ExitLost)
	eventually(t, "what was killed to be gone", func() bool { return len(in(t, dir)) == 0 })
}

func TestOnRequest_Ambiguous_IsRefused(t *testing.T) {
	b := serve(t, holding)
	p := begin(t, "lock", "--socket", b.Socket, "--on-request", "SIGFOO", "x", "--", "echo", "ran")
	p.exits(cli.ExitUsage)
	p.printed(t, "", "bakeryctl: --on-request SIGFOO: no such signal\n"+
		"hint: run kill -l to list the signals, or use a number; for a command use its path\n")
	require.Zero(t, b.Requests(), "the lock was requested")
}
