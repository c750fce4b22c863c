package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// command is the command that runs under the lock, or the wrapper's side of the stub (stub.go) that
// becomes it.
type command struct {
	cmd   *exec.Cmd
	stub  channel       // closed once the stub is the command
	group *cgroup.Group // nil: it is in the wrapper's cgroup
	weak  error         // why it is not contained; nil if contained
	guard *guardian     // of the group; nil if none
	since uint64        // in clock ticks; older children belong to the program that executed bakeryctl
	ended chan struct{} // closed when it has ended and been waited for

	onLost    *script      // nil if none yet
	onRequest *script      // the last one, running or ended; nil if none yet
	askedAt   uint64       // time of SIGTERM to the command, in clock ticks; 0: not yet
	asked     []process.ID // other processes that were sent SIGTERM
}

// startStub starts a stub that will become the command, in its own cgroup if this process may
// create one.
func startStub(l Launch) (*command, error) {
	// This process, instead of init, becomes the parent of every descendant whose own parent ends. It
	// can therefore find all descendants of the command while it runs, daemons included.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("adopt the processes that the command leaves: %w", err)}
	}
	c := &command{since: ticksNow(), ended: make(chan struct{})}
	c.group, c.weak = cgroup.Make(cgroup.Of(os.Getpid(), l.Session))
	err := c.start(l)
	if err != nil && c.group != nil {
		// The cgroup may be the reason: try without it.
		c.group.Remove()
		c.group, c.weak = nil, fmt.Errorf("start a process in %s: %w", c.group.Dir, err)
		err = c.start(l)
	}
	if err != nil {
		return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("start the exec stub: %w", err)}
	}
	if l.bound() && c.group != nil {
		if c.guard, err = startGuardian(c.group); err != nil {
			c.weak = fmt.Errorf("start the guardian of the cgroup: %w", err)
		}
	}
	return c, nil
}

func (c *command) start(l Launch) error {
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
	err = unix.SetNonblock(pair[0], true) // os.NewFile then gives it to the poller, for deadlines
	c.stub = channel{os.NewFile(uintptr(pair[0]), "stub")}
	if err != nil {
		return errors.Join(err, c.stub.Close())
	}
	c.cmd = &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{AsStub, strconv.Itoa(int(theirs)), l.Signals.String(), l.Path}, l.Argv...),
		Env: surroundings(), Stdin: l.Stdin, Stdout: l.Stdout, Stderr: l.Stderr, SysProcAttr: &syscall.SysProcAttr{}}
	if l.bound() {
		c.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if c.group != nil {
		dir, err := os.Open(c.group.Dir) // for clone3 with CLONE_INTO_CGROUP
		if err != nil {
			return errors.Join(err, c.stub.Close())
		}
		defer func() { _ = dir.Close() }()
		c.cmd.SysProcAttr.UseCgroupFD, c.cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := signals.With(l.Signals.Blocked, c.cmd.Start); err != nil {
		return errors.Join(err, c.stub.Close())
	}
	go func() {
		_ = c.cmd.Wait() // cmd.ProcessState has the result
		close(c.ended)
	}()
	return nil
}

// abandon ends a stub whose lock was not granted, or that could not become the command.
func (c *command) abandon() {
	_ = c.stub.Close()
	_ = c.cmd.Process.Kill() // it may be stopped, or not read
	_ = c.group.Kill()       // it may have become the command in the meantime
	<-c.ended
	c.guard.dismiss()
	c.group.Remove()
}

// contain makes bakeryd contain the stub if this process could not.
func (c *command) contain(l Launch) {
	if c.weak == nil || l.bound() {
		return
	}
	var answer stubAnswer
	err := c.stub.send(stubOrder{Contain: l.Session, Socket: l.Socket}.fields(), -1)
	if err == nil {
		_ = c.stub.SetReadDeadline(time.Now().Add(2 * containWithin)) // fails only after Close
		answer, err = c.receiveAnswer()
		_ = c.stub.SetReadDeadline(time.Time{})
	}
	switch {
	case err != nil:
		c.weak = errors.Join(c.weak, err)
	case answer.Weak != "":
		c.weak = errors.New(answer.Weak)
	default:
		c.weak = nil
		groups, _ := cgroup.Of(os.Getpid(), l.Session)
		if i := slices.IndexFunc(groups, (*cgroup.Group).Exists); i >= 0 {
			c.group = groups[i]
		}
	}
}

// Reached is called at each step between grant and execve. Tests stop the process there.
var Reached = func(step string) {}

// begin makes the stub become the command; the command has started when begin returns nil. begin
// waits for a blocked stub only until the holder must stop.
func (c *command) begin(g *Grant, env []string) error {
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
		if !g.settles(func() bool { return mayStart(clock.Boottime.Now(), g.StopAt()) }) {
			return g.Why()
		}
		Reached("ordering")
		order.Until = g.StopAt()
		var answer stubAnswer
		err := c.stub.send(order.fields(), witness)
		if err == nil {
			Reached("ordered")
			answer, err = c.answer(g)
		}
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
			// The stub was ended, for example by a signal of the terminal. It counts as the command,
			// which would have received the signal.
			<-c.ended
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded) && c.hungUp():
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errTooLate
		case err != nil:
			return fmt.Errorf("order the stub to start the command: %w", err)
		case !answer.Late:
			return execError{answer.Errno}
		}
	}
}

// answer reads the stub's answer to an order to begin, at most until the holder must stop. It skips
// a late answer to an earlier order to contain itself.
func (c *command) answer(g *Grant) (stubAnswer, error) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-done:
		case <-g.Warned():
			_ = c.stub.SetReadDeadline(time.Unix(1, 0))
		}
	}()
	for {
		answer, err := c.receiveAnswer()
		if err != nil || answer.Late || answer.Errno != 0 {
			return answer, err
		}
	}
}

func (c *command) receiveAnswer() (stubAnswer, error) {
	fields, _, err := c.stub.receive()
	if err != nil {
		return stubAnswer{}, err
	}
	return parseAnswer(fields)
}

// hungUp reports whether the stub's end of the socket is closed and no answer is pending: the stub has
// become the command, or has ended. The read deadline does not affect it.
func (c *command) hungUp() (is bool) {
	raw, err := c.stub.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		is = err == nil && n == 0
	})
	return is
}

// execError is the error of execve.
type execError struct{ error }
