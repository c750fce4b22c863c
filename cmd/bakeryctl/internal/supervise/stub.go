package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	Contain string        // session whose cgroup the stub moves to; empty: it is to become the command
	Socket  string        // of bakeryd
	Until   time.Duration // on CLOCK_BOOTTIME: the command must start earlier
	Env     []string      // NAME=VALUE, in addition to the stub's environment
}

// fields returns the fields of the message.
func (o stubOrder) fields() []string {
	return append([]string{o.Contain, o.Socket, strconv.FormatInt(int64(o.Until), 10)}, o.Env...)
}

// parseOrder is the inverse of fields.
func parseOrder(fields []string) (stubOrder, error) {
	if len(fields) < 3 {
		return stubOrder{}, fmt.Errorf("order of %d fields", len(fields))
	}
	until, err := strconv.ParseInt(fields[2], 10, 64)
	return stubOrder{Contain: fields[0], Socket: fields[1], Until: time.Duration(until), Env: fields[3:]}, err
}

// stubAnswer is an answer of the stub. A stub that has become the command sends none.
type stubAnswer struct {
	Weak  string
	Late  bool
	Errno syscall.Errno
}

// fields returns the fields of the message.
func (a stubAnswer) fields() []string {
	return []string{strconv.FormatBool(a.Late), strconv.Itoa(int(a.Errno)), a.Weak}
}

// parseAnswer is the inverse of fields.
func parseAnswer(fields []string) (stubAnswer, error) {
	if len(fields) != 3 {
		return stubAnswer{}, fmt.Errorf("answer of %d fields", len(fields))
	}
	errno, err := strconv.Atoi(fields[1])
	return stubAnswer{Weak: fields[2], Late: fields[0] == "true", Errno: syscall.Errno(errno)}, err
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
	UseOneProcessor()
	inherited.Restore()
	unix.CloseOnExec(fd)
	wrapper := channel{os.NewFile(uintptr(fd), "wrapper")} // blocking: there is nothing else to do
	for {
		fields, witness, err := wrapper.receive()
		order, parseErr := parseOrder(fields)
		if err != nil || parseErr != nil {
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
		if err := wrapper.send(answer.fields(), -1); err != nil || answer.Errno != 0 {
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
	execute := func(path string, argv []string) error {
		if !mayStart(clock.Boottime.Now(), o.Until) {
			return errTooLate
		}
		Reached("checked")
		return syscall.Exec(path, argv, env)
	}
	err := signals.With(blocked, func() error {
		err := execute(path, argv)
		if errors.Is(err, syscall.ENOEXEC) {
			err = execute(shell[0], shell) // as execvp(3) runs a script without #!
		}
		return err
	})
	if err == errTooLate {
		return stubAnswer{Late: true}
	}
	return stubAnswer{Errno: errnoOf(err)}
}

func errnoOf(err error) syscall.Errno {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no
	}
	return syscall.EIO
}

// channel is one end of the socket pair between a wrapper and its stub. A message has fields of text
// without NUL, maxMessage bytes at most, and may carry a descriptor. Package net and encoding/json
// would make the start of the stub longer.
type channel struct{ *os.File }

// maxMessage is more than the longest path and the other variables take. It is a variable because the
// compiler puts an array of constant size on the stack, which must then be copied to a larger one.
var maxMessage = 8 << 10

// send sends a message, with a descriptor unless fd is negative.
func (c channel) send(fields []string, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = raw.Write(func(socket uintptr) bool {
		sendErr = unix.Sendmsg(int(socket), []byte(strings.Join(fields, "\x00")), rights, nil, unix.MSG_NOSIGNAL)
		return !again(sendErr)
	})
	return cmp.Or(err, sendErr)
}

// receive blocks until a message arrives. It returns the descriptor that came with it, or -1.
func (c channel) receive() (fields []string, fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, -1, err
	}
	text, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	var n, m int
	var receiveErr error
	err = raw.Read(func(socket uintptr) bool {
		n, m, _, _, receiveErr = unix.Recvmsg(int(socket), text, rights, unix.MSG_CMSG_CLOEXEC)
		return !again(receiveErr)
	})
	if err = cmp.Or(err, receiveErr); err != nil {
		return nil, -1, err
	}
	if n == 0 {
		return nil, -1, io.EOF
	}
	fd = -1
	if controls, err := unix.ParseSocketControlMessage(rights[:m]); err == nil && len(controls) == 1 {
		if fds, err := unix.ParseUnixRights(&controls[0]); err == nil && len(fds) == 1 {
			fd = fds[0]
		}
	}
	return strings.Split(string(text[:n]), "\x00"), fd, nil
}

// again reports whether a call on a socket must be repeated.
func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }
