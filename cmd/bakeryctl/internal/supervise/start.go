package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// starter is the wrapper's side of its stub (stub.go).
type starter struct {
	cmd   *exec.Cmd
	stub  channel
	group *cgroup.Group // of the stub; nil: the stub is in the wrapper's cgroup
	weak  error         // why the command is not contained; nil if contained
	guard *guardian     // of the group; nil if none
	since uint64        // in clock ticks; older children belong to the program that executed bakeryctl
	ended chan struct{} // closed when the stub or command has ended and been waited for
}

// startStub starts a stub that will become the command, in its own cgroup if this process may
// create one.
func startStub(l Launch, bound bool) (*starter, error) {
	if err := adoptOrphans(); err != nil {
		return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: err}
	}
	s := &starter{since: ticksNow(), ended: make(chan struct{})}
	s.group, s.weak = makeGroup(l.Session)
	err := s.start(l, bound)
	if err != nil && s.group != nil {
		// The cgroup may be the reason: try without it.
		s.group.Remove()
		s.group, s.weak = nil, fmt.Errorf("start a process in %s: %w", s.group.Dir, err)
		err = s.start(l, bound)
	}
	if err != nil {
		return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("start the exec stub: %w", err)}
	}
	if bound && s.group != nil {
		if s.guard, err = startGuardian(s.group); err != nil {
			s.weak = fmt.Errorf("start the guardian of the cgroup: %w", err)
		}
	}
	return s, nil
}

// makeGroup creates the cgroup of the command below that of this process.
func makeGroup(session string) (*cgroup.Group, error) {
	self, err := cgroup.WrapperOf(os.Getpid(), session)
	if err != nil {
		return nil, err
	}
	parents, err := cgroup.Parents(os.Getpid())
	if err != nil {
		return nil, err
	}
	for _, parent := range parents {
		cgroup.Prune(parent)
	}
	return cgroup.Make(parents, self)
}

func (s *starter) start(l Launch, bound bool) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs, err := client.Inheritable(pair[1]) // avoids descriptors that the caller opened for the command
	_ = unix.Close(pair[1])
	if err != nil {
		_ = unix.Close(pair[0])
		return err
	}
	defer func() { _ = theirs.Close() }()
	if s.stub, err = channelOf(os.NewFile(uintptr(pair[0]), "stub")); err != nil {
		return err
	}
	s.cmd = &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{AsStub, strconv.Itoa(int(theirs)), l.Signals.String(), l.Path}, l.Argv...),
		Env: surroundings(), Stdin: l.Stdin, Stdout: l.Stdout, Stderr: l.Stderr, SysProcAttr: &syscall.SysProcAttr{}}
	if bound {
		s.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if s.group != nil {
		dir, err := s.group.Open()
		if err != nil {
			return errors.Join(err, s.stub.Close())
		}
		defer func() { _ = dir.Close() }()
		s.cmd.SysProcAttr.UseCgroupFD, s.cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := signals.StartWith(l.Signals.Blocked, s.cmd); err != nil {
		return errors.Join(err, s.stub.Close())
	}
	go func() {
		_ = s.cmd.Wait() // cmd.ProcessState has the result
		close(s.ended)
	}()
	return nil
}

// abandon ends a stub whose lock was not granted, or that could not become the command.
func (s *starter) abandon() {
	_ = s.stub.Close()
	_ = s.cmd.Process.Kill() // it may be stopped, or not read
	_ = s.group.Kill()       // it may have become the command in the meantime
	<-s.ended
	s.guard.dismiss()
	s.group.Remove()
}

// contain makes bakeryd contain the stub if this process could not.
func (s *starter) contain(session, socket string) {
	if s.weak == nil || session == "" {
		return
	}
	var answer stubAnswer
	err := s.stub.send(stubOrder{Contain: session, Socket: socket}, -1)
	if err == nil {
		_ = s.stub.SetReadDeadline(time.Now().Add(2 * containWithin)) // fails only after Close
		_, err = s.stub.receive(&answer)
		_ = s.stub.SetReadDeadline(time.Time{})
	}
	switch {
	case err != nil:
		s.weak = errors.Join(s.weak, err)
	case answer.Weak != "":
		s.weak = errors.New(answer.Weak)
	default:
		s.weak = nil
		if self, err := cgroup.WrapperOf(os.Getpid(), session); err == nil {
			parents, _ := cgroup.Parents(os.Getpid())
			s.group = cgroup.Find(parents, self)
		}
	}
}

// Reached is called at each step between grant and execve. Tests stop the process there.
var Reached = func(step string) {}

// begin makes the stub become the command; the command has started when begin returns nil. begin
// waits for a blocked stub only until the holder must stop.
func (s *starter) begin(g *Grant, env []string) error {
	order, witness := stubOrder{Env: env}, -1
	if g.Inherit != nil {
		d, err := g.Inherit()
		if err != nil {
			return err
		}
		defer func() { _ = d.Close() }() // the stub has its own copy by then
		witness = int(d)
	}
	for {
		if err := awaitTime(g); err != nil {
			return err
		}
		Reached("ordering")
		order.Until = g.StopAt()
		if err := s.stub.send(order, witness); s.hasEnded(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("order the stub to start the command: %w", err)
		}
		Reached("ordered")
		stop := make(chan struct{})
		go s.expireRead(g, stop)
		answer, err := s.answer()
		close(stop)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded) && s.begun():
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errTooLate
		case s.hasEnded(err):
			return nil
		case err != nil:
			return fmt.Errorf("order the stub to start the command: %w", err)
		case !answer.Late:
			return execError{answer.Errno}
		}
	}
}

// answer reads the stub's answer to an order to begin. It skips a late answer to an earlier order
// to contain itself.
func (s *starter) answer() (stubAnswer, error) {
	for {
		var answer stubAnswer
		if _, err := s.stub.receive(&answer); err != nil || answer.Late || answer.Errno != 0 {
			return answer, err
		}
	}
}

// begun reports whether the stub has become the command: its end of the socket is closed, and no
// answer is pending. The read deadline does not affect it.
func (s *starter) begun() (is bool) {
	raw, err := s.stub.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		is = err == nil && n == 0
	})
	return is
}

// hasEnded reports whether err means that the stub was ended, for example by a signal of the
// terminal. The stub then counts as the command, which would have received the signal.
func (s *starter) hasEnded(err error) bool {
	if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return false
	}
	<-s.ended
	return true
}

// execError is the error of execve.
type execError struct{ error }

// expireRead ends the wait for the stub's answer when the holder must stop.
func (s *starter) expireRead(g *Grant, stop <-chan struct{}) {
	select {
	case <-stop:
	case <-g.Warned():
		_ = s.stub.SetReadDeadline(time.Unix(1, 0))
	}
}

// awaitTime blocks until the command may start, or returns why it must not. A process that was
// stopped asks bakeryd whether the lease was renewed, which takes up to MessageTimeout.
func awaitTime(g *Grant) error {
	for giveUp := time.Now().Add(MessageTimeout); ; {
		switch {
		case IsClosed(g.Warned()) || IsClosed(g.Lost()) || time.Now().After(giveUp):
			return g.Why()
		case mayStart(clock.Boottime.Now(), g.StopAt()):
			return nil
		}
		select {
		case <-g.Warned():
		case <-time.After(briefly):
		}
	}
}

// preparation is the work for a command that is done during the wait for its lock. After the grant,
// other clients wait.
type preparation struct {
	work         sync.WaitGroup
	sessionKnown func()         // is called when bakeryd knows the session; contain can be asked then
	over         chan struct{}  // closed when the wait ends without a grant
	children     chan os.Signal // receives SIGCHLD
	starter      *starter       // set by work; nil: none
}

// prepare starts the preparation. If early is false, the stub starts after the grant.
func prepare(l Launch, inbox *signals.Inbox, early bool) *preparation {
	known := make(chan struct{})
	p := &preparation{sessionKnown: sync.OnceFunc(func() { close(known) }), over: make(chan struct{}), children: make(chan os.Signal, 1)}
	p.work.Go(func() {
		signal.Notify(p.children, syscall.SIGCHLD)
		inbox.ForwardMore(l.Signals)
		if !early {
			return
		}
		s, err := startStub(l, false)
		if err != nil {
			return // the attempt after the grant reports it
		}
		p.starter = s
		if s.weak != nil {
			select {
			case <-known:
				s.contain(l.Session, l.Socket)
			case <-p.over:
			}
		}
	})
	return p
}

// use returns the stub after the grant. It replaces a stub that has ended, such as by a signal to
// the process group.
func (p *preparation) use(l Launch, bound bool) (*starter, error) {
	p.sessionKnown()
	p.work.Wait()
	if p.starter != nil && !IsClosed(p.starter.ended) {
		return p.starter, nil
	}
	s, err := startStub(l, bound)
	if err == nil && s.weak != nil {
		s.contain(l.Session, l.Socket)
	}
	return s, err
}

// abandon ends the preparation of a lock that was not granted.
func (p *preparation) abandon() {
	close(p.over)
	p.work.Wait()
	if p.starter != nil {
		p.starter.abandon()
	}
}
