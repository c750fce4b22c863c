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

// script is the command of --on-lost or --on-request, once it runs. It is a process group of its own, by which it is
// told from what the command under the lock has started. Nothing ever waits for it while that has yet to be stopped.
// A nil script is none.
type script struct {
	pid   atomic.Int64  // 0: not started yet
	ended chan struct{} // closed when it has ended and been waited for
}

// startOnLost has a shell run the script that is for a lock about to be lost.
func startOnLost(l Launch, env []string, deadline time.Duration, failed func(error)) *script {
	if l.OnLost == "" {
		return nil
	}
	left := max(0, deadline-clock.Boottime.Now())
	env = append(env, "BAKERY_DEADLINE_MS="+strconv.FormatInt(left.Milliseconds(), 10))
	return l.startScript(l.OnLost, env, failed)
}

// startScript has a shell run a script. Not even its start is waited for: it may take as long as the disk does that
// the shell is on. If it fails, failed is called.
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
		_ = cmd.Wait() // how it ended is its own affair
	}()
	return o
}

// is says whether p is the shell. Once that was waited for, its number may be another's.
func (o *script) is(p process.Stat) bool {
	return o != nil && int64(p.PID) == o.pid.Load() && !IsClosed(o.ended)
}

// among returns which processes of the table are the script's. If it makes daemons of them they are not known
// as its own.
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

// kill kills the script's process group, unless the shell has ended: then the group may be another's.
func (o *script) kill() {
	if o != nil {
		o.signal(unix.SIGKILL)
	}
}

// signal signals the process group, and says whether there is one yet.
func (o *script) signal(s unix.Signal) bool {
	group := int(o.pid.Load())
	if group > 0 && !IsClosed(o.ended) {
		_ = unix.Kill(-group, s)
	}
	return group > 0
}

// finish waits until the script has ended, and kills it at the deadline.
func (o *script) finish(deadline time.Duration) {
	if o == nil {
		return
	}
	for left := deadline - clock.Boottime.Now(); left > 0; left = deadline - clock.Boottime.Now() {
		select {
		case <-o.ended:
			return
		case <-time.After(min(left, LookAgain)):
		}
	}
	o.kill()
	select {
	case <-o.ended:
	case <-time.After(LookAgain): // it is stuck in the kernel
	}
}
