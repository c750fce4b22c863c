package supervise

import (
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// script is a running script of --on-lost or --on-request. Its own process group distinguishes it
// from the processes of the command under the lock. Nothing waits for a script while the command
// still has to be stopped. A nil script means there is none.
type script struct {
	pid   atomic.Int64  // 0: not started yet
	ended chan struct{} // closed when it has ended and been waited for
}

// startOnLost starts the --on-lost script in a shell, or returns nil if there is none.
func startOnLost(l Launch, env []string, deadline time.Duration, failed func(error)) *script {
	if l.OnLost == "" {
		return nil
	}
	left := max(0, deadline-clock.Boottime.Now())
	env = append(env, "BAKERY_DEADLINE_MS="+strconv.FormatInt(left.Milliseconds(), 10))
	return l.startScript(l.OnLost, env, failed)
}

// startScript starts a script in a shell. It does not wait for the start, because a slow disk with
// the shell on it can delay that. It calls failed if the start fails.
func (l Launch) startScript(text string, env []string, failed func(error)) *script {
	cmd := exec.Command("/bin/sh", "-c", text)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = l.Stdout, l.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	o := &script{ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		if err := signals.StartWith(l.Signals.Blocked, cmd); err != nil {
			failed(err)
			return
		}
		o.pid.Store(int64(cmd.Process.Pid))
		_ = cmd.Wait() // the exit code of a script is ignored
	}()
	return o
}

// is reports whether p is the shell. After the shell was waited for, its PID may be reused.
func (o *script) is(p process.Stat) bool {
	return o != nil && int64(p.PID) == o.pid.Load() && !IsClosed(o.ended)
}

// among returns the processes of table that belong to the script. It misses those that became
// daemons.
func (o *script) among(table []process.Stat) []process.Stat {
	if o == nil || o.pid.Load() == 0 {
		return nil
	}
	shell := int(o.pid.Load())
	found := process.Descendants(table, []int{shell}, func(process.Stat) bool { return false })
	for _, p := range table {
		if group, err := unix.Getpgid(p.PID); err == nil && group == shell {
			found = append(found, p)
		}
	}
	return found
}

// kill kills the script's process group unless the shell has ended: then the group id may be
// reused.
func (o *script) kill() {
	if o != nil {
		o.signal(unix.SIGKILL)
	}
}

// signal signals the process group, and reports whether the script has started.
func (o *script) signal(s unix.Signal) bool {
	group := int(o.pid.Load())
	if group > 0 && !IsClosed(o.ended) {
		_ = unix.Kill(-group, s)
	}
	return group > 0
}

// finish blocks until the script has ended, and kills it at the deadline.
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
	o.kill()
	select {
	case <-o.ended:
	case <-time.After(RecheckInterval): // it is stuck in the kernel
	}
}
