// Package supervise runs a command under a lock: it prepares the command while the lock is waited
// for, begins it before the lease ends or not at all, forwards signals to it, and stops it with all
// its descendants when the lock is about to be lost. It knows processes, cgroups and signals. It
// knows no flags, and nothing of how a lock is taken: the caller hands it a Grant. It imports cli,
// signals and term of bakeryctl, and never package daemon.
//
// Run (supervise.go) is where to begin; stub.go explains how the command begins.
package supervise

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

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/process"
)

const (
	// LookAgain is how often a deadline that is awaited is looked at: it moves while the machine
	// sleeps, and timers do not.
	LookAgain = time.Second

	// briefly is the pause before what ends just now is looked for again.
	briefly = 2 * time.Millisecond
)

// Launch says what to run.
type Launch struct {
	Path           string
	Argv           []string
	Lock           string
	Session        string // of the request to bakeryd; empty: there is no bakeryd
	Socket         string // of bakeryd
	Signals        signals.State
	Contained      bool // it must be
	Verbose        bool
	OnLost         string // for a shell; empty: nothing
	OnRequest      Reaction
	RequestText    func(client.Request) string // says who asks for the lock
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Run runs the command under the lock, releases the lock, and returns the exit code. An error says
// why the command was not run.
func Run(g *Grant, inbox *signals.Inbox, l Launch, p *Preparation) (int, error) {
	if g.Bound {
		// Parent death is that of the thread which started the command, so that must not end before us.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	v := Voice{Out: l.Stderr}
	c, err := start(g, l, p, &v)
	if err != nil {
		_ = g.Release() // there may be nothing left to release
		return 0, err
	}
	s := supervisor{grant: g, command: c, launch: l, children: p.children, Voice: v}
	code := s.run(inbox)
	c.onRequest.stop()
	c.guard.dismiss()
	if err := g.Release(); err != nil && code != cli.ExitLost {
		s.Say("release %q: %v", l.Lock, err)
	}
	c.cgroup.Remove() // after the release, which others may wait for
	c.onLost.finish(s.deadline)
	s.WaitSaid()
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
func start(g *Grant, l Launch, p *Preparation, v *Voice) (*command, error) {
	notRun := func(err error) error {
		return &cli.Failure{Code: cli.ExitLost, Err: fmt.Errorf("not running %s under %q: %w", l.Argv[0], l.Lock, err)}
	}
	Reached("granted")
	s, err := p.use(l, g.Bound)
	if err != nil {
		return nil, err
	}
	if s.weak == nil && g.Weak != "" {
		s.weak = errors.New(g.Weak)
	}
	if s.weak != nil && l.Contained {
		s.abandon()
		return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("not running %s: it cannot be contained: %w", l.Argv[0], s.weak),
			Hint: hintContain}
	}
	if l.Verbose {
		v.Say("%q granted, token %v; %s", l.Lock, g.Token(), containment(s.weak))
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
		case failed.error == syscall.ENOENT && checkExecutable(l.Path) == nil:
			return nil, &cli.Failure{Code: cli.ExitNotExec, Err: fmt.Errorf("%s: cannot be run: its interpreter was not found", l.Argv[0])}
		}
		return nil, commandFailure(l.Argv[0], failed.error)
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
		return cli.ExitSignal + int(status.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// supervisor passes signals on to the command, and stops it and its descendants when its lock is about to be lost.
type supervisor struct {
	grant    *Grant
	command  *command
	launch   Launch
	children <-chan os.Signal // gets SIGCHLD
	deadline time.Duration    // of who is to stop, on boottime
	Voice
}

// run returns the exit code, when the command has ended. Its descendants may live on, unless the lock is lost.
func (s *supervisor) run(inbox *signals.Inbox) int {
	var sweep <-chan time.Time
	for {
		select {
		case <-s.command.ended:
			if !s.isOver() && s.handOver(inbox) {
				return s.command.exitCode()
			}
			s.Say("lost %q before the command had ended: %s", s.launch.Lock, s.why())
			s.stop(inbox)
			return cli.ExitLost
		case got := <-inbox.C:
			s.relay(got)
		case <-s.grant.Warned():
			s.Say("stopping the command under %q: %s", s.launch.Lock, s.why())
			s.stop(inbox)
			return cli.ExitLost
		case <-s.grant.Silent:
			s.Say("bakeryd is gone; %q is held until %s unless it comes back",
				s.launch.Lock, s.grant.Deadline().Format(time.TimeOnly))
		case r := <-s.requests():
			s.react(r)
		case <-s.command.onRequest.running():
			// Now there may be another request to react to.
		case <-s.children:
			// Orphans that end would stay in the process table for as long as the command runs.
			if sweep == nil {
				sweep = time.After(LookAgain)
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
func (s *supervisor) handOver(inbox *signals.Inbox) bool {
	for s.grant.There != nil && !s.grant.There() {
		left, err := s.command.survey(false)
		if err == nil && len(left) == 0 && !s.command.cgroup.Populated() {
			return true
		}
		select {
		case <-s.grant.Warned():
			return false
		case got := <-inbox.C:
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
	for give := time.Now().Add(SayWithin); ; {
		over := IsClosed(s.grant.Warned()) || IsClosed(s.grant.Lost())
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
	if n := got.(syscall.Signal); signals.SentToUs(n) {
		s.command.signal(n)
	}
}

// stop ends the command and all its descendants, by SIGTERM and from the deadline on by SIGKILL,
// and returns when none is left. A deadline that moves after all changes nothing: what was told to
// stop does stop.
func (s *supervisor) stop(inbox *signals.Inbox) {
	var (
		c      = s.command
		killed killing
		none   bool
		blind  error
		ended  = c.ended
	)
	s.deadline = clock.Boottime.Now() + time.Until(s.grant.Deadline())
	for !childless() || c.cgroup.Populated() || c.onLost == nil && s.launch.OnLost != "" {
		rest := s.deadline - clock.Boottime.Now()
		left, err := c.survey(rest <= 0)
		if err != nil && blind == nil && c.cgroup == nil {
			blind = err
			s.Say("only the command itself can be stopped, not what it has started: %v", err)
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
			s.await(inbox, briefly, &ended, s.children)
			continue
		}
		none = false
		if rest > 0 {
			s.await(inbox, min(rest, LookAgain), &ended, s.children)
			continue
		}
		pause := killed.round(left, c.kill(left))
		if killed.remained() {
			s.Say("%s of the command under %q did not end by SIGKILL: %s; another host may have the lock",
				processes(len(left)), s.launch.Lock, killed.remnants())
		}
		s.await(inbox, pause, &ended, nil)
	}
	if killed.rounds > 0 {
		s.Say("killed what was left of the command under %q: it did not stop in time", s.launch.Lock)
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

// RemainWithin is how long a process may take to end by SIGKILL before it is reported.
const RemainWithin = time.Second

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
		k.pause = min(2*k.pause, LookAgain)
	}
	k.left, k.err = left, err
	return k.pause
}

// remained reports, once, that processes are left RemainWithin after the first round.
func (k *killing) remained() bool {
	if k.reported || clock.Boottime.Now()-k.begun < RemainWithin {
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
			fmt.Fprintf(l.Stderr, "bakeryctl: run --on-lost: %v\n", err)
		})
	}
}

// await passes signals on until there is reason to look again what is left of the command.
func (s *supervisor) await(inbox *signals.Inbox, limit time.Duration, ended *chan struct{}, children <-chan os.Signal) {
	timeout := time.After(limit)
	for {
		select {
		case <-timeout:
			return
		case <-*ended:
			*ended = nil
			return
		case got := <-inbox.C:
			s.relay(got)
		case <-children:
			// What ends together is looked for once.
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
