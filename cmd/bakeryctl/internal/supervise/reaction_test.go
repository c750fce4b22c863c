package supervise

import (
	"strings"
	"syscall"
	"testing"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

func TestParseReaction(t *testing.T) {
	for _, c := range []struct {
		what string
		want Reaction
		err  string // empty: none
	}{
		{"", Reaction{}, ""},
		{"  ", Reaction{}, ""},
		{"TERM", Reaction{Signal: syscall.SIGTERM}, ""},
		{"SIGUSR1", Reaction{Signal: syscall.SIGUSR1}, ""},
		{"HUP ", Reaction{Signal: syscall.SIGHUP}, ""},
		{"KILL", Reaction{Signal: syscall.SIGKILL}, ""},
		{"1", Reaction{Signal: syscall.SIGHUP}, ""},
		{"64", Reaction{Signal: 64}, ""},
		{"./hook", Reaction{Script: "./hook"}, ""},
		{"hook", Reaction{Script: "hook"}, ""},
		{"/usr/bin/TERM", Reaction{Script: "/usr/bin/TERM"}, ""},
		{"kill -TERM 1", Reaction{Script: "kill -TERM 1"}, ""},
		{"exec SIGFOO", Reaction{Script: "exec SIGFOO"}, ""},
		{"sigma.sh", Reaction{Script: "sigma.sh"}, ""},
		{"0", Reaction{}, "no such signal, want 1 to 64"},
		{"65", Reaction{}, "no such signal, want 1 to 64"},
		{"SIGFOO", Reaction{}, "--on-request SIGFOO: no such signal"},
		{"sigfoo", Reaction{}, "no such signal"},
		{"TREM", Reaction{}, "no such signal"},
		{"SIG", Reaction{}, "no such signal"},
		{"SIGSIGTERM", Reaction{}, "no such signal"},
		{"SIG15", Reaction{}, "no such signal"},
		{"RTMIN+3", Reaction{}, "no such signal"},
		{"term", Reaction{}, "--on-request term: ambiguous: signal or command"},
		{"SigTerm", Reaction{}, "ambiguous: signal or command"},
		{"-9", Reaction{}, "starts with a dash"},
		{"-TERM", Reaction{}, "starts with a dash"},
		{"-x y", Reaction{}, "starts with a dash"},
	} {
		got, err := ParseReaction(c.what)
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
