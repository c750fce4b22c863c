package supervise

import (
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// Reaction is the value of --on-request: a signal, a shell script, or nothing.
type Reaction struct {
	Signal syscall.Signal // 0: none
	Script string
}

// None reports whether r is no reaction.
func (r Reaction) None() bool { return r == Reaction{} }

// requests returns the channel of requests, or nil while a script runs: scripts run one at a time.
func (s *supervisor) requests() <-chan client.Request {
	if s.launch.OnRequest.None() || s.command.onRequest.running() != nil {
		return nil
	}
	return s.grant.Wanted
}

// react sends the signal or starts the script of --on-request.
func (s *supervisor) react(r client.Request) {
	l := s.launch
	if sig := l.OnRequest.Signal; sig != 0 {
		s.Printf("sending %s to the command under %q: %s", signalText(sig), l.Lock, l.RequestText(r))
		s.command.signal(sig)
		return
	}
	env := append(l.environment(s.grant),
		"BAKERY_REQUEST_HOST="+strconv.Itoa(r.Host),
		"BAKERY_REQUEST_HOST_NAME="+r.HostName,
		"BAKERY_REQUEST_MESSAGE="+r.Message)
	s.command.onRequest = l.startScript(l.OnRequest.Script, env, func(err error) {
		_, _ = io.WriteString(l.Stderr, fmt.Sprintf("bakeryctl: run --on-request: %v\n", err))
	})
}

func signalText(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// running returns a channel that is closed when the script has ended, or nil if none runs.
func (o *script) running() <-chan struct{} {
	if o == nil || IsClosed(o.ended) {
		return nil
	}
	return o.ended
}

// stop ends the script, because its command has ended. It sends SIGTERM, and SIGKILL after
// stopWithin.
func (o *script) stop() {
	if o == nil {
		return
	}
	asked := false
	for giveUp := time.Now().Add(stopWithin); time.Now().Before(giveUp); {
		if !asked {
			asked = o.signal(unix.SIGTERM) && o.signal(unix.SIGCONT)
		}
		pause := briefly
		if asked {
			pause = time.Until(giveUp)
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
	case <-time.After(RecheckInterval): // it is stuck in the kernel
	}
}

// stopWithin is the time that a script of --on-request has to end after its command.
const stopWithin = time.Second
