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
	"strings"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/clock"
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
	argv           []string
	lock           string
	session        string // of the request to bakeryd; empty: there is no bakeryd
	socket         string // of bakeryd
	signals        signalState
	contained      bool // it must be
	verbose        bool
	onLost         string // for a shell; empty: nothing
	onRequest      reaction
	stdin          io.Reader
	stdout, stderr io.Writer
}

// additions are what the command's environment has beyond that of this process.
func (l launch) additions(g *grant) []string {
	return append([]string{"BAKERY_LOCK=" + l.lock, envToken + "=" + g.Token().String(), "BAKERY_HOST_ID=" + strconv.Itoa(g.hostID)}, g.reach()...)
}

// environment is what the scripts of --on-lost and --on-request get.
func (l launch) environment(g *grant) []string { return append(surroundings(), l.additions(g)...) }

// runUnder runs the command under the lock, releases the lock, and returns the exit code. An error says why
// the command was not run.
func runUnder(g *grant, signals *inbox, l launch, p *preparation) (int, error) {
	if g.bound {
		// Parent death is that of the thread which started the command, so that must not end before us.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	v := voice{out: l.stderr}
	c, err := start(g, l, p, &v)
	if err != nil {
		_ = g.release() // there may be nothing left to release
		return 0, err
	}
	s := supervisor{grant: g, command: c, launch: l, children: p.children, voice: v}
	code := s.run(signals)
	c.onRequest.stop()
	c.guard.dismiss()
	if err := g.release(); err != nil && code != exitLost {
		s.say("release %q: %v", l.lock, err)
	}
	c.cgroup.Remove() // after the release, which others may wait for
	c.onLost.finish(s.deadline)
	s.waitSaid()
	return code, nil
}

// command is the command that runs under the lock.
type command struct {
	cmd    *exec.Cmd
	cgroup *cgroup.Group // nil: this process has made none
	onLost *script       // nil: none yet
	guard  *guardian     // of the cgroup; nil: none
	since  uint64        // in clock ticks; children of ours that are older came with the exec that started us
	ended  chan struct{} // closed when it has ended and been waited for

	onRequest *script // the last one that ran, or runs; nil: none yet

	askedAt uint64         // when it was asked to end, in clock ticks; 0: not yet
	asked   []process.Stat // who was asked besides
}

// start has the stub become the command.
func start(g *grant, l launch, p *preparation, v *voice) (*command, error) {
	notRun := func(err error) error {
		return &failure{code: exitLost, err: fmt.Errorf("not running %s under %q: %w", l.argv[0], l.lock, err)}
	}
	reached("granted")
	s, err := p.use(l, g.bound)
	if err != nil {
		return nil, err
	}
	if s.weak == nil && g.weak != "" {
		s.weak = errors.New(g.weak)
	}
	if s.weak != nil && l.contained {
		s.abandon()
		return nil, &failure{code: exitUnavailable, err: fmt.Errorf("not running %s: it cannot be contained: %w", l.argv[0], s.weak),
			hint: hintContain}
	}
	if l.verbose {
		v.say("%q granted, token %v; %s", l.lock, g.Token(), containment(s.weak))
	}
	switch err := s.begin(g, l.additions(g)); {
	case err == nil:
		_ = s.stub.Close()
		return &command{cmd: s.cmd, cgroup: s.group, guard: s.guard, since: s.since, ended: s.ended}, nil
	default:
		s.abandon()
		var failed execError
		switch {
		case !errors.As(err, &failed):
			return nil, notRun(err)
		case failed.error == syscall.ENOENT && checkExecutable(l.path) == nil:
			return nil, &failure{code: exitNotExec, err: fmt.Errorf("%s: cannot be run: its interpreter was not found", l.argv[0])}
		}
		return nil, commandFailure(l.argv[0], failed.error)
	}
}

const hintContain = "run bakeryd as root, in the pid namespace of bakeryctl or one above that, where cgroups of version 2 are mounted; with --device, run bakeryctl as root"

// containment describes how sure it is that all of a command is stopped; why is nil if it is in a
// cgroup.
func containment(why error) string {
	if why == nil {
		return "contained in a cgroup"
	}
	return fmt.Sprintf("weak containment: %v", why)
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
			if !s.isOver() && s.handOver(signals) {
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

// handOver leaves what the command has left running to bakeryd, which holds the lock until that has
// ended. If bakeryd does not run it is waited for. handOver returns false if the lock is lost, or
// about to be, and bakeryd has not come back by then.
func (s *supervisor) handOver(signals *inbox) bool {
	for s.grant.there != nil && !s.grant.there() {
		left, err := s.command.survey(false)
		if err == nil && len(left) == 0 && !s.command.cgroup.Populated() {
			return true
		}
		select {
		case <-s.grant.Warned():
			return false
		case got := <-signals.signals:
			if got != syscall.SIGCONT {
				return true
			}
		case <-time.After(awaitBakeryd):
		}
	}
	return true
}

// awaitBakeryd is how often a bakeryd that does not run is looked for.
const awaitBakeryd = 100 * time.Millisecond

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
	if n := got.(syscall.Signal); sentToUs(n) {
		s.command.signal(n)
	}
}

// stop ends the command and all its descendants, by SIGTERM and from the deadline on by SIGKILL,
// and returns when none is left. A deadline that moves after all changes nothing: what was told to
// stop does stop.
func (s *supervisor) stop(signals *inbox) {
	var (
		c      = s.command
		killed killing
		none   bool
		blind  error
		ended  = c.ended
	)
	s.deadline = clock.Boottime.Now() + time.Until(s.grant.Deadline())
	for !childless() || c.cgroup.Populated() || c.onLost == nil && s.launch.onLost != "" {
		rest := s.deadline - clock.Boottime.Now()
		left, err := c.survey(rest <= 0)
		if err != nil && blind == nil && c.cgroup == nil {
			blind = err
			s.say("only the command itself can be stopped, not what it has started: %v", err)
		}
		if rest > 0 {
			c.terminate(left)
		}
		s.runOnLost()
		if err == nil && len(left) == 0 && !c.cgroup.Populated() {
			// A process that is orphaned or forks while the table is read may not be found in it, hence twice.
			// This is for those who have children that are not the command's; the others are soon childless.
			if none {
				break
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
		pause := killed.round(left, c.kill(left))
		if killed.remained() {
			s.say("%s of the command under %q did not end by SIGKILL: %s; another host may have the lock",
				processes(len(left)), s.launch.lock, killed.remnants())
		}
		s.await(signals, pause, &ended, nil)
	}
	if killed.rounds > 0 {
		s.say("killed what was left of the command under %q: it did not stop in time", s.launch.lock)
	}
}

// killing is what SIGKILL has come to.
type killing struct {
	rounds   int
	begun    time.Duration  // of the first round, on boottime
	left     []process.Stat // what the last round found
	err      error          // why it could not be killed, if that is known
	pause    time.Duration
	reported bool
}

// remainWithin is how long a process may take to end by SIGKILL before it is reported.
const remainWithin = time.Second

// round notes what a round of SIGKILL has found, and returns the pause before the next.
func (k *killing) round(left []process.Stat, err error) time.Duration {
	if k.rounds++; k.rounds == 1 {
		k.begun = clock.Boottime.Now()
	}
	// A process that was sent SIGKILL forks no more, so new ones are children of those that were
	// not there before.
	if k.pause == 0 || slices.ContainsFunc(left, func(p process.Stat) bool { return !isIn(p, k.left) }) {
		k.pause = briefly
	} else {
		k.pause = min(2*k.pause, lookAgain)
	}
	k.left, k.err = left, err
	return k.pause
}

// remained reports, once, that processes are left remainWithin after the first round.
func (k *killing) remained() bool {
	if k.reported || clock.Boottime.Now()-k.begun < remainWithin {
		return false
	}
	k.reported = true
	return true
}

func (k *killing) remnants() string {
	var pids []string
	for _, p := range k.left {
		pids = append(pids, strconv.Itoa(p.PID))
	}
	text := "pid " + strings.Join(pids, ", ")
	if len(pids) == 0 {
		text = "they are in its cgroup, and not visible here"
	}
	if k.err != nil {
		text += fmt.Sprintf(" (%v)", k.err)
	}
	return text
}

func processes(n int) string {
	switch n {
	case 0:
		return "processes"
	case 1:
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// runOnLost runs what is to be run once when the lock is lost.
func (s *supervisor) runOnLost() {
	l, c := s.launch, s.command
	if c.onLost == nil {
		c.onLost = startOnLost(l, l.environment(s.grant), s.deadline, func(err error) {
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
