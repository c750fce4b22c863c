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

// Reaction is what --on-request asks for: a signal, a script for the shell, or nothing.
type Reaction struct {
	Signal syscall.Signal // 0: none
	Script string
}

// None reports whether nothing is to be done.
func (r Reaction) None() bool { return r == Reaction{} }

// requests is where requests come from that can be reacted to now: scripts run one at a time.
func (s *supervisor) requests() <-chan client.Request {
	if s.launch.OnRequest.None() || s.command.onRequest.running() != nil {
		return nil
	}
	return s.grant.Wanted
}

// react does what --on-request says.
func (s *supervisor) react(r client.Request) {
	l := s.launch
	if sig := l.OnRequest.Signal; sig != 0 {
		s.Say("sending %s to the command under %q: %s", signalText(sig), l.Lock, l.RequestText(r))
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

// running is closed when the script has ended; nil: none runs.
func (o *script) running() <-chan struct{} {
	if o == nil || IsClosed(o.ended) {
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
	case <-time.After(LookAgain): // it is stuck in the kernel
	}
}

// stopWithin is how long a script of --on-request gets to end when the command has.
const stopWithin = time.Second
