package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
)

func TestParseReaction(t *testing.T) {
	for _, c := range []struct {
		what string
		want supervise.Reaction
		err  string // empty: none
	}{
		{"", supervise.Reaction{}, ""},
		{"  ", supervise.Reaction{}, ""},
		{"TERM", supervise.Reaction{Signal: syscall.SIGTERM}, ""},
		{"SIGUSR1", supervise.Reaction{Signal: syscall.SIGUSR1}, ""},
		{"HUP ", supervise.Reaction{Signal: syscall.SIGHUP}, ""},
		{"KILL", supervise.Reaction{Signal: syscall.SIGKILL}, ""},
		{"1", supervise.Reaction{Signal: syscall.SIGHUP}, ""},
		{"64", supervise.Reaction{Signal: 64}, ""},
		{"./hook", supervise.Reaction{Script: "./hook"}, ""},
		{"hook", supervise.Reaction{Script: "hook"}, ""},
		{"/usr/bin/TERM", supervise.Reaction{Script: "/usr/bin/TERM"}, ""},
		{"kill -TERM 1", supervise.Reaction{Script: "kill -TERM 1"}, ""},
		{"exec SIGFOO", supervise.Reaction{Script: "exec SIGFOO"}, ""},
		{"sigma.sh", supervise.Reaction{Script: "sigma.sh"}, ""},
		{"0", supervise.Reaction{}, "no such signal, want 1 to 64"},
		{"65", supervise.Reaction{}, "no such signal, want 1 to 64"},
		{"SIGFOO", supervise.Reaction{}, "--on-request SIGFOO: no such signal"},
		{"sigfoo", supervise.Reaction{}, "no such signal"},
		{"TREM", supervise.Reaction{}, "no such signal"},
		{"SIG", supervise.Reaction{}, "no such signal"},
		{"SIGSIGTERM", supervise.Reaction{}, "no such signal"},
		{"SIG15", supervise.Reaction{}, "no such signal"},
		{"RTMIN+3", supervise.Reaction{}, "no such signal"},
		{"term", supervise.Reaction{}, "--on-request term: ambiguous: signal or command"},
		{"SigTerm", supervise.Reaction{}, "ambiguous: signal or command"},
		{"-9", supervise.Reaction{}, "starts with a dash"},
		{"-TERM", supervise.Reaction{}, "starts with a dash"},
		{"-x y", supervise.Reaction{}, "starts with a dash"},
	} {
		got, err := parseReaction(c.what)
		if c.err == "" {
			if err != nil || got != c.want {
				t.Errorf("%q: %+v, %v, want %+v", c.what, got, err, c.want)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.err) || err.(*cli.Failure).Code != cli.ExitUsage || err.(*cli.Failure).Hint == "" {
			t.Errorf("%q: %+v, %v, want %q", c.what, got, err, c.err)
		}
	}
}

func TestOnRequest_Ambiguous_IsRefused(t *testing.T) {
	b := serve(t, holding)
	p := begin(t, "lock", "--socket", b.Socket, "--on-request", "SIGFOO", "x", "--", "echo", "ran")
	p.exits(cli.ExitUsage)
	p.printed(t, "", "bakeryctl: --on-request SIGFOO: no such signal\n"+
		"hint: run kill -l to list the signals, or use a number; for a command use its path\n")
	require.Zero(t, b.Requests(), "the lock was requested")
}
