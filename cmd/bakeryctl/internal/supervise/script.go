package supervise

import (
	"cmp"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/process"
)

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
		name := cmp.Or(unix.SignalName(sig), fmt.Sprintf("signal %d", int(sig)))
		s.Printf("sending %s to the command under %q: %s", name, l.Lock, requestText(r))
		s.command.signal(sig)
		return
	}
	s.command.onRequest = l.startScript("--on-request", l.OnRequest.Script, append(l.environment(s.grant),
		"BAKERY_REQUEST_HOST="+strconv.Itoa(r.Host),
		"BAKERY_REQUEST_HOST_NAME="+r.HostName,
		"BAKERY_REQUEST_MESSAGE="+r.Message))
}

// runOnLost starts the script of --on-lost unless it was started.
func (s *supervisor) runOnLost() {
	l, c := s.launch, s.command
	if c.onLost == nil && l.OnLost != "" {
		left := max(0, s.deadline-clock.Boottime.Now())
		env := append(l.environment(s.grant), "BAKERY_DEADLINE_MS="+strconv.FormatInt(left.Milliseconds(), 10))
		c.onLost = l.startScript("--on-lost", l.OnLost, env)
	}
}

// script is a running script of --on-lost or --on-request. Its own process group distinguishes it
// from the processes of the command under the lock. Nothing waits for a script while the command
// still has to be stopped. A nil script means there is none.
type script struct {
	shell   *exec.Cmd
	started chan struct{} // closed when it has started
	ended   chan struct{} // closed when it has ended and been waited for, or could not start
}

// startScript starts the script of a flag in a shell. It does not wait for the start, because a slow
// disk with the shell on it can delay that.
func (l Launch) startScript(flag, text string, env []string) *script {
	cmd := exec.Command("/bin/sh", "-c", text)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = l.Stdout, l.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	o := &script{shell: cmd, started: make(chan struct{}), ended: make(chan struct{})}
	useAllProcessors()
	go func() {
		defer close(o.ended)
		if err := signals.With(l.Signals.Blocked, cmd.Start); err != nil {
			fmt.Fprintf(l.Stderr, "bakeryctl: run %s: %v\n", flag, err)
			return
		}
		close(o.started)
		_ = cmd.Wait() // the exit code of a script is ignored
	}()
	return o
}

// running returns a channel that is closed when the script has ended, or nil if none runs.
func (o *script) running() <-chan struct{} {
	if o == nil || IsClosed(o.ended) {
		return nil
	}
	return o.ended
}

// pid returns the pid of the shell, and so the id of its process group; 0 if it has not started.
func (o *script) pid() int {
	if o == nil || !IsClosed(o.started) {
		return 0
	}
	return o.shell.Process.Pid
}

// is reports whether a process is the shell. After the shell was waited for, its PID may be reused.
func (o *script) is(pid int) bool { return pid == o.pid() && !IsClosed(o.ended) }

// among returns the processes of table that belong to the script. It misses those that became
// daemons.
func (o *script) among(table []process.Stat) (found []process.ID) {
	shell := o.pid()
	if shell == 0 {
		return nil
	}
	for _, p := range process.Descendants(table, []int{shell}, func(process.Stat) bool { return false }) {
		found = append(found, p.ID)
	}
	for _, p := range table {
		if group, err := unix.Getpgid(p.PID); err == nil && group == shell {
			found = append(found, p.ID)
		}
	}
	return found
}

// signal signals the process group of a started script unless the shell has ended: then the group
// id may be reused.
func (o *script) signal(s unix.Signal) {
	if pid := o.pid(); pid != 0 && !IsClosed(o.ended) {
		_ = unix.Kill(-pid, s)
	}
}

// stopWithin is the time that a script of --on-request has to end after its command.
const stopWithin = time.Second

// stop ends the script, because its command has ended. It sends SIGTERM, and SIGKILL after
// stopWithin.
func (o *script) stop() {
	if o == nil {
		return
	}
	deadline := clock.Boottime.Now() + stopWithin
	select {
	case <-o.started:
		o.signal(unix.SIGTERM)
		o.signal(unix.SIGCONT)
	case <-o.ended:
	case <-time.After(stopWithin):
	}
	o.finish(deadline)
}

// finish blocks until the script has ended, and kills it at the deadline. It gives up on a script
// that is stuck in the kernel.
func (o *script) finish(deadline time.Duration) {
	if o == nil {
		return
	}
	for left := deadline - clock.Boottime.Now(); left > 0; left = deadline - clock.Boottime.Now() {
		select {
		case <-o.ended:
			return
		case <-time.After(min(left, RecheckInterval)):
		}
	}
	o.signal(unix.SIGKILL)
	select {
	case <-o.ended:
	case <-time.After(RecheckInterval):
	}
}
