// Package supervise runs a command under a lock. It prepares the command during the wait for the
// lock and starts it before the lease ends, or not at all. It forwards signals, and stops the
// command with all its descendants when the lock is about to be lost. It handles processes, cgroups
// and signals. It knows no flags and does not acquire locks: the caller passes a Grant. It imports
// cli, signals and term of bakeryctl, and never package daemon.
//
// Start reading at Run (supervise.go); stub.go explains how the command starts.
package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/process"
)

const (
	// RecheckInterval is the interval of checking a deadline. A deadline moves while the machine sleeps,
	// and timers do not.
	RecheckInterval = time.Second

	// shortRun is the time from the start of the command to the first forwarded real-time signal, and
	// to the use of all processors. Commands that end earlier do not pay for either.
	shortRun = 5 * time.Millisecond

	// briefly is the pause before checking again for a change that is about to happen.
	briefly = 2 * time.Millisecond
)

// Launch describes the command.
type Launch struct {
	Path           string
	Argv           []string
	Lock           string
	Session        string // of the request to bakeryd; empty: no bakeryd, see bound
	Socket         string // of bakeryd
	Signals        signals.State
	Contained      bool // refuse to run it otherwise
	Verbose        bool
	OnLost         string // shell script; empty: none
	OnRequest      Reaction
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// bound reports whether the lock ends with this process, because that is a host itself. The command
// must then end with this process, too.
func (l Launch) bound() bool { return l.Session == "" }

// Acquirer blocks until the lock is granted. It calls onWaiting with the number of waiters ahead.
type Acquirer func(onWaiting func(ahead int)) (*Grant, error)

// Run acquires the lock, runs the command under it, releases it, and returns the exit code. It
// returns an error if the command did not run.
//
// If early is true, the process of the command starts during the wait, unless the lock ends with this
// process. Use false for a request that does not wait, which is usually refused.
func Run(l Launch, inbox *signals.Inbox, early bool, acquire Acquirer) (int, error) {
	s := &supervisor{launch: l, inbox: inbox, children: make(chan os.Signal, 1), Messages: Messages{Out: l.Stderr}}
	known := make(chan bool, 1) // receives whether bakeryd knows the session, and can contain the stub
	var work sync.WaitGroup     // is done during the wait: after the grant, other clients wait
	work.Go(func() {
		signal.Notify(s.children, syscall.SIGCHLD)
		if early && !l.bound() {
			s.command, _ = startStub(l) // the attempt after the grant reports errors
		}
		if <-known && s.command != nil {
			s.command.contain(l)
		}
	})
	setKnown := func(is bool) {
		select {
		case known <- is:
		default: // it was set before
		}
	}
	g, err := acquire(func(int) { setKnown(true) })
	setKnown(err == nil)
	work.Wait()
	if err != nil {
		if s.command != nil {
			s.command.abandon()
		}
		return 0, err
	}
	if l.bound() {
		// The parent-death signal follows the thread that started the command, so this thread must
		// live as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	s.grant = g
	if !inbox.CatchMore(l.Signals) {
		inbox.ForwardMore(l.Signals)
	}
	if err := s.start(); err != nil {
		_ = g.Release() // fails if the lock is lost already
		return 0, err
	}
	later := time.AfterFunc(shortRun, func() {
		useAllProcessors()
		inbox.ForwardMore(l.Signals)
	})
	defer later.Stop()
	code, c := s.run(), s.command
	c.onRequest.stop()
	c.guard.dismiss()
	if err := g.Release(); err != nil && code != cli.ExitLost {
		s.Printf("release %q: %v", l.Lock, err)
	}
	c.group.Remove() // after the release, because other clients may wait for that
	c.onLost.finish(s.deadline)
	s.Flush()
	return code, nil
}

// start makes the stub become the command. It replaces a stub that has ended, such as by a signal
// to the process group.
func (s *supervisor) start() (err error) {
	Reached("granted")
	g, l, c := s.grant, s.launch, s.command
	if c == nil || c.hungUp() || IsClosed(c.ended) {
		if c, err = startStub(l); err != nil {
			return err
		}
		c.contain(l)
		s.command = c
	}
	if c.weak == nil && g.Weak != "" {
		c.weak = errors.New(g.Weak)
	}
	if c.weak != nil && l.Contained {
		c.abandon()
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("not running %s: it cannot be contained: %w", l.Argv[0], c.weak),
			Hint: hintContain}
	}
	if l.Verbose {
		how := "contained in a cgroup"
		if c.weak != nil {
			how = fmt.Sprintf("weak containment: %v", c.weak)
		}
		s.Printf("%q granted, token %v; %s", l.Lock, g.Token, how)
	}
	if err = c.begin(g, l.additions(g)); err == nil {
		_ = c.stub.Close()
		s.ended = c.ended
		return nil
	}
	c.abandon()
	failed, isExec := errors.AsType[execError](err)
	switch {
	case !isExec:
		return &cli.Failure{Code: cli.ExitLost, Err: fmt.Errorf("not running %s under %q: %w", l.Argv[0], l.Lock, err)}
	case failed.error == syscall.ENOENT && checkExecutable(l.Path) == nil:
		return &cli.Failure{Code: cli.ExitNotExec, Err: fmt.Errorf("%s: cannot be run: its interpreter was not found", l.Argv[0]),
			Hint: "check the first line of the script, or install the interpreter"}
	}
	return commandFailure(l.Argv[0], failed.error)
}

const hintContain = "run bakeryd as root, with cgroups of version 2, in the pid namespace of bakeryctl or a parent of it; with --device, run bakeryctl as root"

// signal signals the command. It does nothing after the command has ended.
func (c *command) signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// exitCode returns the exit code of a command that has ended.
func (c *command) exitCode() int {
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return cli.ExitSignal + int(status.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// supervisor forwards signals to the command, and stops it and its descendants when its lock is
// about to be lost.
type supervisor struct {
	launch   Launch
	inbox    *signals.Inbox
	grant    *Grant
	command  *command        // nil: none yet
	ended    <-chan struct{} // of the command; nil once stop knows that it has ended
	children chan os.Signal  // receives SIGCHLD
	deadline time.Duration   // of stop, on CLOCK_BOOTTIME
	Messages
}

// run blocks until the command has ended, and returns its exit code. Descendants may live on unless
// the lock is lost.
func (s *supervisor) run() int {
	var sweep <-chan time.Time
	for {
		select {
		case <-s.command.ended:
			if !s.isOver() && s.handOver() {
				return s.command.exitCode()
			}
			s.Printf("lost %q before the command had ended: %s", s.launch.Lock, s.why())
			s.stop()
			return cli.ExitLost
		case got := <-s.inbox.C:
			s.relay(got)
		case <-s.grant.Warned():
			s.Printf("stopping the command under %q: %s", s.launch.Lock, s.why())
			s.stop()
			return cli.ExitLost
		case <-s.grant.Silent:
			s.Printf("bakeryd is gone; %q is held until %s at most unless it comes back",
				s.launch.Lock, s.grant.Deadline().Format(time.TimeOnly))
		case r := <-s.requests():
			s.react(r)
		case <-s.command.onRequest.running():
			// requests returns the channel of requests again.
		case <-s.children:
			// Zombies of adopted processes would fill the process table while the command runs.
			if sweep == nil {
				sweep = time.After(RecheckInterval)
			}
		case <-sweep:
			sweep = nil
			_, _ = s.command.survey(true) // an error is ignored: the next SIGCHLD retries
		}
	}
}

// handOver leaves the remaining processes of the command to bakeryd, which holds the lock until
// they have ended. It waits for a bakeryd that does not run. It returns false if the lock is lost,
// or about to be, before bakeryd is back.
func (s *supervisor) handOver() bool {
	for s.grant.There != nil && !s.grant.There() {
		left, err := s.command.survey(false)
		if err == nil && len(left) == 0 && !s.command.group.Populated() {
			return true
		}
		select {
		case <-s.grant.Warned():
			return false
		case got := <-s.inbox.C:
			if got != syscall.SIGCONT {
				return true
			}
		case <-time.After(awaitBakeryd):
		}
	}
	return true
}

// awaitBakeryd is the interval of checking whether bakeryd is back.
const awaitBakeryd = 100 * time.Millisecond

func (s *supervisor) why() string {
	if err := s.grant.Err(); err != nil {
		return err.Error()
	}
	left := time.Until(s.grant.Deadline())
	return fmt.Sprintf("the lease ends in %v and was not renewed\nhint: see the log of bakeryd, and dmesg for the device",
		max(0, left).Round(10*time.Millisecond))
}

// isOver reports whether the command had to stop. If this process and the command were stopped
// beyond the end of the lease, and bakeryd has killed the command, the loss becomes known only
// after a moment: isOver waits for that, MessageTimeout at most.
func (s *supervisor) isOver() bool {
	s.grant.settles(func() bool { return time.Until(s.grant.Deadline()) > 0 })
	return s.grant.over()
}

func (s *supervisor) relay(got os.Signal) {
	if n := got.(syscall.Signal); signals.SentToUs(n) {
		s.command.signal(n)
	}
}

// stop ends the command and all its descendants, by SIGTERM and from the deadline on by SIGKILL,
// and blocks until none is left. A deadline that moves later changes nothing: a command that was
// sent SIGTERM is stopped.
func (s *supervisor) stop() {
	var killed killing
	c, gone, blind := s.command, false, false
	s.deadline = clock.Boottime.Now() + time.Until(s.grant.Deadline())
	for !childless() || c.group.Populated() || c.onLost == nil && s.launch.OnLost != "" {
		rest := s.deadline - clock.Boottime.Now()
		left, err := c.survey(rest <= 0)
		if err != nil && !blind && c.group == nil {
			blind = true
			s.Printf("only the command itself can be stopped, not its descendants: %v", err)
		}
		if rest > 0 {
			c.terminate(left)
		}
		s.runOnLost()
		// One reading of the table can miss a process that forks or is orphaned meanwhile, hence
		// two readings. This matters if bakeryctl has children of another program; otherwise it is
		// childless soon.
		before := gone
		if gone = err == nil && len(left) == 0 && !c.group.Populated(); gone && before {
			break
		}
		switch {
		case gone:
			s.await(briefly, s.children)
		case rest > 0:
			s.await(min(rest, RecheckInterval), s.children)
		default:
			err = c.kill(left)
			pause := killed.round(left)
			if !killed.reported && clock.Boottime.Now()-killed.begun >= RemainWithin {
				killed.reported = true
				s.Printf("%s of the command under %q did not end by SIGKILL: %s; another host may have the lock",
					process.Count(len(left)), s.launch.Lock, remnants(left, err))
			}
			s.await(pause, nil)
		}
	}
	if killed.begun != 0 {
		s.Printf("killed the remaining processes of the command under %q: they did not stop in time", s.launch.Lock)
	}
}

// killing is the progress of SIGKILL.
type killing struct {
	begun    time.Duration // of the first round, on CLOCK_BOOTTIME; 0: none yet
	left     []process.ID  // found by the last round
	pause    time.Duration // after it
	reported bool
}

// RemainWithin is the time that a process has to end by SIGKILL before it is reported.
const RemainWithin = time.Second

// round records what a round of SIGKILL found, and returns the pause before the next round.
func (k *killing) round(left []process.ID) time.Duration {
	// A process that was sent SIGKILL does not fork, so new processes are children of those that
	// the last round did not find.
	if k.begun == 0 || slices.ContainsFunc(left, func(id process.ID) bool { return !slices.Contains(k.left, id) }) {
		k.pause = briefly
	} else {
		k.pause = min(2*k.pause, RecheckInterval)
	}
	k.begun = cmp.Or(k.begun, clock.Boottime.Now())
	k.left = left
	return k.pause
}

// remnants describes processes that SIGKILL did not end; why is nil if unknown.
func remnants(left []process.ID, why error) string {
	text := "they are in its cgroup and not visible in this pid namespace"
	if len(left) > 0 {
		text = "pid " + strings.Join(process.Numbers(left), ", ")
	}
	if why != nil {
		text += fmt.Sprintf(" (%v)", why)
	}
	return text
}

// await forwards signals until the processes of the command must be checked again.
func (s *supervisor) await(limit time.Duration, children <-chan os.Signal) {
	timeout := time.After(limit)
	for {
		select {
		case <-timeout:
			return
		case <-s.ended:
			s.ended = nil
			return
		case got := <-s.inbox.C:
			s.relay(got)
		case <-children:
			// Processes that end together cause one check.
			children, timeout = nil, time.After(min(limit, briefly))
		}
	}
}

// IsClosed reports whether c is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
