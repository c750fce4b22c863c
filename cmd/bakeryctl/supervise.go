package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
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

	// briefly is the pause before what ends just now is looked for again.
	briefly = 2 * time.Millisecond
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
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	c, err := start(g, l)
	if err != nil {
		return 0, errors.Join(err, g.release())
	}
	s := supervisor{grant: g, command: c, lock: l.lock, stderr: stderr, children: children}
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
	since uint64        // in clock ticks; children of ours that are older came with the exec that started us
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
	since, err := ticksNow()
	if err == nil {
		err = adoptOrphans()
	}
	if err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	err = cmd.Start()
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
	c := &command{cmd: cmd, since: since, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // what it returns is in cmd.ProcessState as well
		close(c.ended)
	}()
	return c, nil
}

// signal does nothing once the command has ended.
func (c *command) signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// exitCode is to be called when the command has ended.
func (c *command) exitCode() int {
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// supervisor passes signals on to the command, and stops it and its descendants when its lock is lost.
type supervisor struct {
	grant    *grant
	command  *command
	lock     string
	stderr   io.Writer
	children <-chan os.Signal // gets SIGCHLD
	said     chan struct{}    // closed when the last message was written; nil: there was none
}

// run returns the exit code, when the command has ended. Its descendants may live on, unless the lock is lost.
func (s *supervisor) run(signals *inbox) int {
	var sweep <-chan time.Time
	for {
		select {
		case <-s.command.ended:
			if !isClosed(s.grant.Lost()) {
				return s.command.exitCode()
			}
			s.say("lost %q before the command had ended: %v", s.lock, s.grant.Err())
			s.stop(signals)
			return exitLost
		case got := <-signals.signals:
			s.relay(got)
		case <-s.grant.Lost():
			s.say("stopping the command under %q: %v", s.lock, s.grant.Err())
			s.stop(signals)
			return exitLost
		case <-s.children:
			// Orphans that end would stay in the process table for as long as the command runs.
			if sweep == nil {
				sweep = time.After(lookAgain)
			}
		case <-sweep:
			sweep = nil
			_, _ = s.command.survey() // if it fails, it is tried again when the next orphan ends
		}
	}
}

func (s *supervisor) relay(got os.Signal) {
	if !reachedGroup(got) {
		s.command.signal(got)
	}
}

// stop ends the command and all its descendants, by SIGTERM and from the deadline on by SIGKILL, and returns
// when none is left.
func (s *supervisor) stop(signals *inbox) {
	var (
		asked, killed, blind, none bool
		before                     []proc // what the last round of SIGKILL found
		pause                      = briefly
		ended                      = s.command.ended
	)
	for !childless() {
		left, err := s.command.survey()
		if err != nil && !blind {
			blind = true
			s.say("only the command itself can be stopped, not what it has started: %v", err)
		}
		if err == nil && len(left) == 0 {
			// A process that is orphaned or forks while the table is read may not be found in it, hence twice.
			// This is for those who have children that are not the command's; the others are soon childless.
			if none {
				return
			}
			none = true
			s.await(signals, briefly, &ended, s.children)
			continue
		}
		none = false
		if rest := time.Until(s.grant.Deadline()); rest > 0 {
			if !asked {
				asked = true
				// Who is stopped has to go on to end. Asked once only: they may start others to clean up.
				s.command.signalAll(left, syscall.SIGTERM, syscall.SIGCONT)
			}
			s.await(signals, min(rest, lookAgain), &ended, s.children)
			continue
		}
		s.command.signalAll(left, syscall.SIGKILL)
		if !killed {
			killed = true
			s.say("killed what was left of the command under %q: it did not stop in time", s.lock)
		}
		// Who was sent SIGKILL forks no more, so new ones are children of those who were not there before.
		if slices.ContainsFunc(left, func(p proc) bool { return !p.isIn(before) }) {
			pause = briefly
		} else {
			pause = min(2*pause, lookAgain)
		}
		before = left
		s.await(signals, pause, &ended, nil)
	}
}

// await passes signals on until there is reason to look again what is left of the command.
func (s *supervisor) await(signals *inbox, limit time.Duration, ended *chan struct{}, children <-chan os.Signal) {
	timeout := time.After(limit)
	for {
		select {
		case <-timeout:
			return
		case <-*ended:
			*ended = nil
			return
		case got := <-signals.signals:
			s.relay(got)
		case <-children:
			// What ends together is looked for once.
			children, timeout = nil, time.After(min(limit, briefly))
		}
	}
}

// say writes to standard error in the background: the command has to be stopped whether or not anybody
// reads what we have to say.
func (s *supervisor) say(format string, args ...any) {
	message := fmt.Sprintf("bakeryctl: "+format+"\n", args...)
	before, written := s.said, make(chan struct{})
	s.said = written
	go func() {
		defer close(written)
		if before != nil {
			<-before
		}
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
