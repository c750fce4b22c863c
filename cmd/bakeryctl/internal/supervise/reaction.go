package supervise

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Reaction is the value of --on-request: a signal, a shell script, or nothing.
type Reaction struct {
	Signal syscall.Signal // 0: none
	Script string
}

// None reports whether r is no reaction.
func (r Reaction) None() bool { return r == Reaction{} }

// wordCharacters are those of names and numbers of signals, such as RTMIN+3.
const wordCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"

// ParseReaction parses --on-request as a signal or a command. It refuses an ambiguous value, because a
// mistake would show only at the first request for the lock.
func ParseReaction(what string) (Reaction, error) {
	refuse := func(why, hint string) (Reaction, error) {
		return Reaction{}, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("--on-request %s: %s", text.Printable(what), why), Hint: hint}
	}
	what = strings.TrimSpace(what)
	switch {
	case strings.HasPrefix(what, "-"):
		return refuse("starts with a dash", "write a signal as TERM, SIGTERM or 15")
	case what == "" || strings.Trim(what, wordCharacters) != "":
		return Reaction{Script: what}, nil
	}
	if n, err := strconv.Atoi(what); err == nil {
		if n < 1 || n > signals.Last {
			return refuse(fmt.Sprintf("no such signal, want 1 to %d", signals.Last), "run kill -l to list the signals")
		}
		return Reaction{Signal: syscall.Signal(n)}, nil
	}
	bare, prefixed := strings.CutPrefix(strings.ToUpper(what), "SIG")
	signal := unix.SignalNum("SIG" + bare)
	shouted := what == strings.ToUpper(what) && what[0] >= 'A' // as names of signals are
	switch {
	case signal != 0 && shouted:
		return Reaction{Signal: signal}, nil
	case signal != 0:
		return refuse("ambiguous: signal or command", fmt.Sprintf("for the signal use %s, for a command its path", bare))
	case shouted || prefixed:
		return refuse("no such signal", "run kill -l to list the signals, or use a number; for a command use its path")
	}
	return Reaction{Script: what}, nil
}

// requestText describes a request and its sender.
func requestText(r client.Request) string {
	asked := text.HostName(r.Host, r.HostName) + " asks for it"
	if r.Message != "" {
		asked += ": " + text.PrintableLine(r.Message)
	}
	return asked
}
