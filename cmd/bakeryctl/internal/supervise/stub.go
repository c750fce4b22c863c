package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// The exec stub is this program again, started during the wait for the lock. It waits in the
// process group and cgroup in which the command will run, and becomes the command when the wrapper
// reports the grant. The stub's last act before execve(2) is to compare CLOCK_BOOTTIME with the
// time from which the command would be told to stop. Therefore no command starts late, even if
// processes were stopped between the grant and execve.
//
//	wrapper                             stub
//	stubOrder{Contain}           -->    asks bakeryd to move it into the cgroup
//	                             <--    stubAnswer{}, or {Weak: why not}
//	stubOrder{Until, Env}, FIFO  -->    mayStart? execve
//	                             <--    end of file: the command runs
//	                                    stubAnswer{Late}: it waits for the next order
//	                                    stubAnswer{Errno}: execve failed, and it ends

// AsStub is the argv[0] of a stub. Its arguments are the descriptor of its socket, the signals that
// the command inherits, the path to execute, and the argv of the command.
const AsStub = "bakeryctl-exec"

// stubOrder is a message of the wrapper: Contain and Socket, or Until and Env.
type stubOrder struct {
	Contain string        `json:"contain,omitempty"`  // session whose cgroup the stub moves to
	Socket  string        `json:"socket,omitempty"`   // of bakeryd
	Until   time.Duration `json:"until_ns,omitempty"` // on CLOCK_BOOTTIME: the command must start earlier
	Env     []string      `json:"env,omitempty"`      // NAME=VALUE, in addition to the stub's environment
}

// stubAnswer is an answer of the stub. A stub that has become the command sends none.
type stubAnswer struct {
	Weak  string        `json:"weak,omitempty"`
	Late  bool          `json:"late,omitempty"`
	Errno syscall.Errno `json:"errno,omitempty"`
}

// mayStart reports whether a command may start now: before the time from which it would be told to
// stop. Both times are on CLOCK_BOOTTIME.
func mayStart(now, until time.Duration) bool { return now < until }

// containWithin is the timeout for bakeryd to move a process into a cgroup.
const containWithin = time.Second

// RunStub is the main function of the stub. It returns the exit code of a stub that did not become
// the command.
func RunStub(args []string) int {
	if len(args) < 4 {
		return cli.ExitUsage
	}
	fd, err := strconv.Atoi(args[0])
	inherited, stateErr := signals.ParseState(args[1])
	if err != nil || stateErr != nil {
		return cli.ExitUsage
	}
	inherited.Restore()
	wrapper, err := channelOf(os.NewFile(uintptr(fd), "wrapper"))
	if err != nil {
		return cli.ExitUsage
	}
	for {
		var order stubOrder
		witness, err := wrapper.receive(&order)
		if err != nil {
			return cli.ExitLost // the wrapper has ended, or the lock was not granted
		}
		var answer stubAnswer
		if order.Contain != "" {
			ctx, cancel := context.WithTimeout(context.Background(), containWithin)
			if err := client.New(order.Socket).Contain(ctx, order.Contain); err != nil {
				answer.Weak = err.Error()
			}
			cancel()
		} else {
			Reached("received")
			answer = become(args[2], args[3:], inherited.Blocked, order, witness)
		}
		if err := wrapper.send(answer, -1); err != nil || answer.Errno != 0 {
			return cli.ExitNotExec
		}
	}
}

// become executes the command. It returns only if execve fails or the order is too late.
func become(path string, argv []string, blocked signals.Set, o stubOrder, witness int) stubAnswer {
	if witness >= 0 {
		inherited, err := client.Inheritable(witness)
		_ = unix.Close(witness)
		if err != nil {
			return stubAnswer{Errno: errnoOf(err)}
		}
		defer func() { _ = inherited.Close() }()
	}
	for _, v := range o.Env {
		name, value, _ := strings.Cut(v, "=")
		_ = os.Setenv(name, value) // fails only for names that the wrapper never uses
	}
	env := os.Environ()
	shell := append([]string{"/bin/sh", path}, argv[1:]...)
	runtime.LockOSThread() // the command inherits the mask of this thread
	defer runtime.UnlockOSThread()
	if before, err := signals.SetMask(&blocked); err == nil {
		defer func() { _, _ = signals.SetMask(&before) }()
	}
	if !mayStart(clock.Boottime.Now(), o.Until) {
		return stubAnswer{Late: true}
	}
	Reached("checked")
	err := syscall.Exec(path, argv, env)
	if errors.Is(err, syscall.ENOEXEC) {
		// execvp(3) runs a script without #! in the shell.
		if !mayStart(clock.Boottime.Now(), o.Until) {
			return stubAnswer{Late: true}
		}
		err = syscall.Exec(shell[0], shell, env)
	}
	return stubAnswer{Errno: errnoOf(err)}
}

func errnoOf(err error) syscall.Errno {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no
	}
	return syscall.EIO
}

// channel is one end of the socket pair between a wrapper and its stub. A message is one JSON
// object of at most maxMessage bytes and may carry a descriptor.
type channel struct{ *net.UnixConn }

const maxMessage = 64 << 10

// channelOf returns a channel on a socket, and closes file.
func channelOf(file *os.File) (channel, error) {
	defer func() { _ = file.Close() }() // the connection uses a duplicate
	conn, err := net.FileConn(file)
	if err != nil {
		return channel{}, err
	}
	return channel{conn.(*net.UnixConn)}, nil
}

// send sends a message, with a descriptor unless fd is negative.
func (c channel) send(message any, fd int) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err = c.WriteMsgUnix(text, rights, nil)
	return err
}

// receive blocks until a message arrives. It returns the descriptor that came with it, or -1.
func (c channel) receive(message any) (fd int, err error) {
	text, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return -1, err
	}
	if n == 0 {
		return -1, io.EOF
	}
	fd = -1
	if controls, err := unix.ParseSocketControlMessage(rights[:m]); err == nil && len(controls) == 1 {
		if fds, err := unix.ParseUnixRights(&controls[0]); err == nil && len(fds) == 1 {
			fd = fds[0]
		}
	}
	return fd, json.Unmarshal(text[:n], message)
}
