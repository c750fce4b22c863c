package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	// lookAgain is how often a deadline that is awaited is looked at: it moves while the machine sleeps, and
	// timers do not.
	lookAgain = time.Second

	// sayWithin bounds the wait for a standard error that takes no more.
	sayWithin = time.Second
)

// launch says what to run.
type launch struct {
	path           string
	argv           []string
	lock           string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// runUnder runs the command under the lock, releases the lock, and returns the exit code. An error says why
// the command was not run.
func runUnder(g *grant, signals *inbox, stderr io.Writer, l launch) (int, error) {
	if g.bound {
		// Parent death is that of the thread which started the command, so that must not end before us.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	if isClosed(g.Lost()) {
		_ = g.release() // there is nothing left to release
		return 0, &failure{code: exitLost, err: fmt.Errorf("not running %s under %q: %w", l.argv[0], l.lock, g.Err())}
	}
	c, err := start(g, l)
	if err != nil {
		return 0, errors.Join(err, g.release())
	}
	s := supervisor{grant: g, command: c, lock: l.lock, stderr: stderr}
	code := s.run(signals)
	if err := g.release(); err != nil && code != exitLost {
		s.say("release %q: %v", l.lock, err)
	}
	s.waitSaid()
	return code, nil
}

// command is the command that runs under the lock.
type command struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and been waited for
}

func start(g *grant, l launch) (*command, error) {
	env := append(os.Environ(),
		"BAKERY_LOCK="+l.lock,
		"BAKERY_TOKEN="+g.Token().String(),
		"BAKERY_HOST_ID="+strconv.Itoa(g.hostID))
	cmd := &exec.Cmd{Path: l.path, Args: l.argv, Env: env, Stdin: l.stdin, Stdout: l.stdout, Stderr: l.stderr}
	if g.inherit != nil {
		d, err := g.inherit()
		if err != nil {
			return nil, &failure{code: exitUnavailable, err: err}
		}
		defer func() { _ = d.Close() }() // by then the command has its own
	}
	if g.bound {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	err := cmd.Start()
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without #!, which execvp(3) gives to the shell.
		cmd = &exec.Cmd{Path: "/bin/sh", Args: append([]string{"/bin/sh", l.path}, l.argv[1:]...), Env: env,
			Stdin: l.stdin, Stdout: l.stdout, Stderr: l.stderr, SysProcAttr: cmd.SysProcAttr}
		err = cmd.Start()
	}
	if errors.Is(err, syscall.ENOENT) && checkExecutable(l.path) == nil {
		return nil, &failure{code: exitNotExec, err: fmt.Errorf("%s: cannot be run: its interpreter was not found", l.argv[0])}
	}
	if err != nil {
		return nil, commandFailure(l.argv[0], err)
	}
	c := &command{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // what it returns is in cmd.ProcessState as well
		close(c.ended)
	}()
	return c, nil
}

// signal does nothing once the command has ended.
func (c *command) signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// terminate asks the command to end. One that is stopped has to go on for that.
func (c *command) terminate() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

func (c *command) kill() { c.signal(syscall.SIGKILL) }

// exitCode is to be called when the command has ended.
func (c *command) exitCode() int {
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// supervisor passes signals on to the command, and stops it when its lock is lost.
type supervisor struct {
	grant   *grant
	command *command
	lock    string
	stderr  io.Writer
	said    chan struct{} // closed when the last message was written; nil: there was none
}

// run returns the exit code, when the command has ended.
func (s *supervisor) run(signals *inbox) int {
	lost := s.grant.Lost()
	var overdue <-chan time.Time
	for {
		select {
		case <-s.command.ended:
			if !isClosed(s.grant.Lost()) {
				return s.command.exitCode()
			}
			if lost != nil {
				s.say("lost %q before the command had ended: %v", s.lock, s.grant.Err())
			}
			return exitLost
		case got := <-signals.signals:
			if !reachedGroup(got) {
				s.command.signal(got)
			}
		case <-lost:
			lost = nil
			if left := time.Until(s.grant.Deadline()); left > 0 {
				s.command.terminate()
				overdue = time.After(min(left, lookAgain))
			} else {
				s.command.kill()
			}
			s.say("stopping the command under %q: %v", s.lock, s.grant.Err())
		case <-overdue:
			overdue = nil
			if left := time.Until(s.grant.Deadline()); left > 0 {
				overdue = time.After(min(left, lookAgain))
			} else {
				s.command.kill()
			}
		}
	}
}

// say writes to standard error in the background: the command has to be stopped whether or not anybody
// reads what we have to say.
func (s *supervisor) say(format string, args ...any) {
	message := fmt.Sprintf("bakeryctl: "+format+"\n", args...)
	written := make(chan struct{})
	s.said = written
	go func() {
		defer close(written)
		_, _ = io.WriteString(s.stderr, message)
	}()
}

func (s *supervisor) waitSaid() {
	if s.said == nil {
		return
	}
	select {
	case <-s.said:
	case <-time.After(sayWithin):
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
