package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const (
	// maxWanted is how many requests are kept that are yet to be reacted to.
	maxWanted = 16
)

// reaction is what --on-request asks for: a signal, a script for the shell, or nothing.
type reaction struct {
	signal syscall.Signal // 0: none
	script string
}

func (r reaction) none() bool { return r == reaction{} }

const (
	capitals       = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	smallLetters   = "abcdefghijklmnopqrstuvwxyz"
	numbersAndSuch = "0123456789+-" // RTMIN+3 has them
)

// isOneWord says whether a text could be the name or the number of a signal.
func isOneWord(text string) bool {
	return text != "" && strings.Trim(text, capitals+smallLetters+numbersAndSuch) == ""
}

// isShouted says whether a word is written as signals are.
func isShouted(word string) bool {
	return strings.Trim(word, capitals+numbersAndSuch) == "" && strings.Trim(word[:1], capitals) == ""
}

// parseReaction tells a signal from a command. What might have been meant as either is refused: to run a command
// named SIGFOO, or to take the signal for one, would show only when the lock is asked for.
func parseReaction(what string) (reaction, error) {
	refuse := func(why, hint string) (reaction, error) {
		return reaction{}, &failure{code: exitUsage, err: fmt.Errorf("--on-request %s: %s", text.Printable(what), why), hint: hint}
	}
	what = strings.TrimSpace(what)
	switch {
	case strings.HasPrefix(what, "-"):
		return refuse("begins with a dash", "a signal is given as TERM, SIGTERM or 15")
	case !isOneWord(what):
		return reaction{script: what}, nil
	}
	if n, err := strconv.Atoi(what); err == nil {
		if n < 1 || n > lastSignal {
			return refuse(fmt.Sprintf("no such signal, want 1 to %d", lastSignal), "kill -l lists the signals")
		}
		return reaction{signal: syscall.Signal(n)}, nil
	}
	bare, prefixed := strings.CutPrefix(strings.ToUpper(what), "SIG")
	signal := unix.SignalNum("SIG" + bare)
	switch {
	case signal != 0 && isShouted(what):
		return reaction{signal: signal}, nil
	case signal != 0:
		return refuse("a signal, or a command?", fmt.Sprintf("the signal is %s; a command of that name can be given by its path", bare))
	case isShouted(what) || prefixed:
		return refuse("no such signal", "kill -l lists them, those without a name are given by number; a command of that name by its path")
	}
	return reaction{script: what}, nil
}

// requests is where requests come from that can be reacted to now: scripts run one at a time.
func (s *supervisor) requests() <-chan client.Request {
	if s.launch.onRequest.none() || s.command.onRequest.running() != nil {
		return nil
	}
	return s.grant.wanted
}

// react does what --on-request says.
func (s *supervisor) react(r client.Request) {
	l := s.launch
	if sig := l.onRequest.signal; sig != 0 {
		s.say("sending %s to the command under %q: %s", signalText(sig), l.lock, requestText(r))
		s.command.signal(sig)
		return
	}
	env := append(l.environment(s.grant),
		"BAKERY_REQUEST_HOST="+strconv.Itoa(r.Host),
		"BAKERY_REQUEST_HOST_NAME="+r.HostName,
		"BAKERY_REQUEST_MESSAGE="+r.Message)
	s.command.onRequest = l.startScript(l.onRequest.script, env, func(err error) {
		_, _ = io.WriteString(l.stderr, fmt.Sprintf("bakeryctl: run --on-request: %v\n", err))
	})
}

func signalText(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

func requestText(r client.Request) string {
	shown := hostLabel(&report.Host{ID: r.Host, Name: r.HostName}) + " asks for it"
	if r.Message != "" {
		shown += ": " + text.PrintableLine(r.Message)
	}
	return shown
}

// running is closed when the script has ended; nil: none runs.
func (o *script) running() <-chan struct{} {
	if o == nil || isClosed(o.ended) {
		return nil
	}
	return o.ended
}

// stop has the script end: what it does for the command is of no use any more. It is asked to by SIGTERM, and killed
// if that takes long.
func (o *script) stop() {
	if o == nil {
		return
	}
	asked := false
	for give := time.Now().Add(stopWithin); time.Now().Before(give); {
		if !asked {
			asked = o.signal(unix.SIGTERM) && o.signal(unix.SIGCONT)
		}
		pause := briefly
		if asked {
			pause = time.Until(give)
		}
		select {
		case <-o.ended:
			return
		case <-time.After(pause):
		}
	}
	o.kill()
	select {
	case <-o.ended:
	case <-time.After(lookAgain): // it is stuck in the kernel
	}
}

// stopWithin is how long a script of --on-request gets to end when the command has.
const stopWithin = time.Second
