package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/server"
)

// longestDir is the maximum length of the directory of a socket: the path of a socket is limited.
const longestDir = 64

// child is a process that serves a socket: as bakeryd does, or as the toy.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer // the child ends when this is closed, thus with this process
	dir    string    // of its socket
	socket string
}

// startChild starts a child with a hidden command, and blocks until it serves its socket.
func (b *benching) startChild(command ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	parent := os.TempDir()
	if len(parent) > longestDir {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "bakery")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	c := &child{cmd: cmd, dir: dir, socket: filepath.Join(dir, "sock")}
	b.children = append(b.children, c)
	cmd.Args = append([]string{os.Args[0], "--socket", c.socket}, command...)
	cmd.Stderr = b.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C must not reach it
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s in a child process: %w", command[0], err)
	}
	defer context.AfterFunc(b.ctx, func() { _ = stdout.Close() })()
	_, err = stdout.Read(make([]byte, 1))
	switch {
	case b.ctx.Err() != nil:
		return nil, context.Cause(b.ctx)
	case err == nil:
		return c, nil
	}
	_ = cmd.Wait() // its result is the exit code
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return nil, &cli.Failure{Code: code} // the child has reported its error
	}
	return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("run %s in a child process: %w", strings.Join(command, " "), err)}
}

// end makes the child leave the lockspace, if it joined, and end.
func (c *child) end() error {
	defer os.RemoveAll(c.dir)
	if c.cmd.Process == nil {
		return nil
	}
	_ = c.stdin.Close()
	late := time.AfterFunc(ondevice.LeaveWithin, func() { _ = c.cmd.Process.Kill() })
	_ = c.cmd.Wait() // the child has reported its own errors
	if !late.Stop() {
		return fmt.Errorf("end the child process %s: it did not end within %v; other hosts will declare its host dead",
			strings.Join(c.cmd.Args[3:], " "), ondevice.LeaveWithin)
	}
	return nil
}

// HostCommand is the hidden command of the child process that is a bakeryd.
const HostCommand = "bench-host"

// Serve serves the lockspace on devices at socket as bakeryd does, until stdin ends. It writes to
// stdout when it serves. The parent notices errors after that itself, so they are silent.
func Serve(ctx context.Context, devices []string, socket string, stdin io.Reader, stdout, stderr io.Writer) error {
	ln, err := server.Listen(socket)
	if err != nil {
		return ondevice.Failure(err)
	}
	defer ln.Close()
	log, serves := ondevice.Logger(stderr), false
	s := daemon.NewService(daemon.Config{Devices: devices, Logger: log, Keep: true, Linger: daemon.DefaultLinger}, func(*daemon.Host) {
		serves = true
		_, _ = io.WriteString(stdout, "serving\n")
	})
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		s.Drain()
	}()
	srv := server.New(server.Config{Host: s.Serving, Log: log, Events: s.Events()})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	err = s.Run(ctx)
	if err = errors.Join(err, srv.Shutdown(), <-served); err == nil {
		return nil
	}
	f := ondevice.Failure(err)
	switch {
	case serves:
		f.Err = nil
	case errors.Is(err, lease.ErrFull):
		f.Code, f.Hint = cli.ExitUnavailable, "stop a host, or format for more --hosts"
	case errors.Is(err, fs.ErrNotExist):
		f.Hint = "to create a lockspace, run bakeryctl format " + strings.Join(devices, " ")
	}
	return f
}
