package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/boottime"
	"github.com/bakeryd/bakeryd/daemon/process"
)

const (
	// lookAgain is how often a deadline that is awaited is looked at: it moves while the machine sleeps, and
	// timers do not.
	lookAgain = time.Second

	// briefly is the pause before what ends just now is looked for again.
	briefly = 2 * time.Millisecond
)

// launch says what to run.
type launch struct {
	path           string
	prepared       *preparation
	argv           []string
	lock           string
	onLost         string // for a shell; empty: nothing
	onRequest      reaction
	stdin          io.Reader
	stdout, stderr io.Writer
}

// environment is what the command gets.
func (l launch) environment(g *grant) []string {
	return append(append(surroundings(),
		"BAKERY_LOCK="+l.lock,
		envToken+"="+g.Token().String(),
		"BAKERY_HOST_ID="+strconv.Itoa(g.hostID)), g.reach()...)
}

// runUnder runs the command under the lock, releases the lock, and returns the exit code. An error says why
// the command was not run.
func runUnder(g *grant, signals *inbox, l launch) (int, error) {
	if g.bound {
		// Parent death is that of the thread which started the command, so that must not end before us.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	l.prepared.work.Wait()
	if isClosed(g.Warned()) || isClosed(g.Lost()) {
		why := g.Err()
		_ = g.release() // there may be nothing left to release
		if why == nil {
			why = errors.New("its lease is about to end without a renewal")
		}
		return 0, &failure{code: exitLost, err: fmt.Errorf("not running %s under %q: %w", l.argv[0], l.lock, why)}
	}
	c, err := start(g, l)
	if err != nil {
		return 0, errors.Join(err, g.release())
	}
	s := supervisor{grant: g, command: c, launch: l, children: l.prepared.children, voice: voice{out: l.stderr}}
	code := s.run(signals)
	c.onRequest.stop()
	if err := g.release(); err != nil && code != exitLost {
		s.say("release %q: %v", l.lock, err)
	}
	c.cgroup.remove() // after the release, which others may wait for
	c.onLost.finish(s.deadline)
	s.waitSaid()
	return code, nil
}

// command is the command that runs under the lock.
type command struct {
	cmd    *exec.Cmd
	cgroup *cgroup       // nil: none could be made
	onLost *script       // nil: none yet
	since  uint64        // in clock ticks; children of ours that are older came with the exec that started us
	ended  chan struct{} // closed when it has ended and been waited for

	onRequest *script // the last one that ran, or runs; nil: none yet

	askedAt uint64         // when it was asked to end, in clock ticks; 0: not yet
	asked   []process.Stat // who was asked besides
}

func start(g *grant, l launch) (*command, error) {
	if g.inherit != nil {
		d, err := g.inherit()
		if err != nil {
			return nil, &failure{code: exitUnavailable, err: err}
		}
		defer func() { _ = d.Close() }() // by then the command has its own
	}
	since := ticksNow()
	if err := adoptOrphans(); err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	group := l.prepared.place.make()
	cmd, err := l.start(g, group, l.path, l.argv)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without #!, which execvp(3) gives to the shell.
		cmd, err = l.start(g, group, "/bin/sh", append([]string{"/bin/sh", l.path}, l.argv[1:]...))
	}
	if err != nil {
		group.remove()
	}
	if errors.Is(err, syscall.ENOENT) && checkExecutable(l.path) == nil {
		return nil, &failure{code: exitNotExec, err: fmt.Errorf("%s: cannot be run: its interpreter was not found", l.argv[0])}
	}
	if err != nil {
		return nil, commandFailure(l.argv[0], err)
	}
	c := &command{cmd: cmd, cgroup: group, since: since, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // what it returns is in cmd.ProcessState as well
		close(c.ended)
	}()
	return c, nil
}

// start starts a program in the group, or, if that is what the kernel refuses, outside of it.
func (l launch) start(g *grant, group *cgroup, path string, argv []string) (*exec.Cmd, error) {
	cmd := &exec.Cmd{Path: path, Args: argv, Env: l.environment(g), Stdin: l.stdin, Stdout: l.stdout, Stderr: l.stderr,
		SysProcAttr: &syscall.SysProcAttr{}}
	if g.bound {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, group.fd
	}
	err := cmd.Start()
	if err != nil && group != nil && !errors.Is(err, syscall.ENOEXEC) {
		// The error does not say whether the group was the reason.
		return l.start(g, nil, path, argv)
	}
	return cmd, err
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

// supervisor passes signals on to the command, and stops it and its descendants when its lock is about to be lost.
type supervisor struct {
	grant    *grant
	command  *command
	launch   launch
	children <-chan os.Signal // gets SIGCHLD
	deadline time.Duration    // of who is to stop, on boottime
	voice
}

// run returns the exit code, when the command has ended. Its descendants may live on, unless the lock is lost.
func (s *supervisor) run(signals *inbox) int {
	var sweep <-chan time.Time
	for {
		select {
		case <-s.command.ended:
			if !s.isOver() {
				return s.command.exitCode()
			}
			s.say("lost %q before the command had ended: %s", s.launch.lock, s.why())
			s.stop(signals)
			return exitLost
		case got := <-signals.signals:
			s.relay(got)
		case <-s.grant.Warned():
			s.say("stopping the command under %q: %s", s.launch.lock, s.why())
			s.stop(signals)
			return exitLost
		case <-s.grant.silent:
			s.say("bakeryd is gone; %q is held until %s unless it comes back",
				s.launch.lock, s.grant.Deadline().Format(time.TimeOnly))
		case r := <-s.requests():
			s.react(r)
		case <-s.command.onRequest.running():
			// Now there may be another request to react to.
		case <-s.children:
			// Orphans that end would stay in the process table for as long as the command runs.
			if sweep == nil {
				sweep = time.After(lookAgain)
			}
		case <-sweep:
			sweep = nil
			_, _ = s.command.survey(true) // if it fails, it is tried again when the next orphan ends
		}
	}
}

// why says why the command is stopped.
func (s *supervisor) why() string {
	if err := s.grant.Err(); err != nil {
		return err.Error()
	}
	left := time.Until(s.grant.Deadline())
	return fmt.Sprintf("the lease ends in %v and was not renewed", max(0, left).Round(10*time.Millisecond))
}

// isOver says whether the command was to stop, or is not known not to have been. We may both have stood still
// beyond the end of the lease, and bakeryd killed the command before we look: then it shows in a moment.
func (s *supervisor) isOver() bool {
	for give := time.Now().Add(sayWithin); ; {
		over := isClosed(s.grant.Warned()) || isClosed(s.grant.Lost())
		if over || time.Until(s.grant.Deadline()) > 0 || time.Now().After(give) {
			return over
		}
		select {
		case <-s.grant.Warned():
		case <-s.grant.Lost():
		case <-time.After(briefly):
		}
	}
}

func (s *supervisor) relay(got os.Signal) {
	if !reachedGroup(got) {
		s.command.signal(got)
	}
}

// stop ends the command and all its descendants, by SIGTERM and from the deadline on by SIGKILL, and returns
// when none is left. A deadline that moves after all changes nothing: who was told to stop does stop.
func (s *supervisor) stop(signals *inbox) {
	var (
		c            = s.command
		killed, none bool
		blind        error
		before       []process.Stat // what the last round of SIGKILL found
		pause        = briefly
		ended        = c.ended
	)
	s.deadline = boottime.Now() + time.Until(s.grant.Deadline())
	for !childless() || !c.cgroup.empty() || c.onLost == nil && s.launch.onLost != "" {
		rest := s.deadline - boottime.Now()
		left, err := c.survey(rest <= 0)
		if err != nil && blind == nil && c.cgroup == nil {
			blind = err
			s.say("only the command itself can be stopped, not what it has started: %v", err)
		}
		if rest > 0 {
			c.terminate(left)
		}
		s.runOnLost()
		if err == nil && len(left) == 0 && c.cgroup.empty() {
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
		if rest > 0 {
			s.await(signals, min(rest, lookAgain), &ended, s.children)
			continue
		}
		c.kill(left)
		if !killed {
			killed = true
			s.say("killed what was left of the command under %q: it did not stop in time", s.launch.lock)
		}
		// Who was sent SIGKILL forks no more, so new ones are children of those who were not there before.
		if slices.ContainsFunc(left, func(p process.Stat) bool { return !isIn(p, before) }) {
			pause = briefly
		} else {
			pause = min(2*pause, lookAgain)
		}
		before = left
		s.await(signals, pause, &ended, nil)
	}
}

// runOnLost runs what is to be run once when the lock is lost.
func (s *supervisor) runOnLost() {
	l, c := s.launch, s.command
	if c.onLost == nil {
		c.onLost = startOnLost(l.onLost, l.environment(s.grant), l.stdout, l.stderr, s.deadline, func(err error) {
			fmt.Fprintf(l.stderr, "bakeryctl: run --on-lost: %v\n", err)
		})
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
