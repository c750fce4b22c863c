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

// asking is a bakeryd that passes requests on to the holder.
func asking(t *testing.T) (b *fakeBakeryd, ask func(host int, name, message string)) {
	t.Helper()
	type wish struct {
		host          int
		name, message string
	}
	wishes := make(chan wish, 16)
	b = serve(t, func(x *exchange) {
		if !x.Requests {
			t.Error("requests were not asked for")
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

func TestOnRequestSignals(t *testing.T) {
	t.Parallel()
	b, ask := asking(t)
	// The signal is for the command and not for what it has started.
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
	if got, want := p.told(), "bakeryctl: sending SIGUSR1 to the command under \"x\": host 2 (db2) asks for it: reboot\n"+
		"bakeryctl: sending SIGUSR1 to the command under \"x\": host 4 asks for it\n"; got != want {
		t.Errorf("standard error %q, want %q", got, want)
	}
	require.Empty(t, p.rest())
}

func TestOnRequestEndsTheCommand(t *testing.T) {
	b, ask := asking(t)
	p := follow(t, "lock", "--socket", b.Socket, "--on-request", "15", "x", "--", "sh", "-c", "echo ready; exec sleep 1000")
	p.expect("ready")
	ask(2, "db\u202e2", "\u202eoops")
	p.exits(143)
	require.Equal(t, `bakeryctl: sending SIGTERM to the command under "x": host 2 ("db\u202e2") asks for it: "\u202eoops"`+"\n", p.told())
	b.AwaitRelease()
}

func TestOnRequestRunsACommand(t *testing.T) {
	t.Parallel()
	b, ask := asking(t)
	dir := t.TempDir()
	// One at a time: each waits for its turn to end.
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
	require.Empty(t, p.told())
}

// TestOnRequestIsStopped: the script is not to go on when the command has ended, and does not keep the lock.
func TestOnRequestIsStopped(t *testing.T) {
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

// TestOnRequestIsStoppedWhenTheLockIsLost: as all that bakeryctl has started is.
func TestOnRequestIsStoppedWhenTheLockIsLost(t *testing.T) {
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
