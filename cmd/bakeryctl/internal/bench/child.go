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

// child is a process that serves as bakeryd does.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer // the child ends when this is closed, thus with this process
	dir   string    // of its socket
}

// startChild starts a child that serves the lockspace at --device, and blocks until it does.
func (b *benching) startChild() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	parent := os.TempDir()
	if len(parent) > longestDir {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "bakery")
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	b.child, b.Socket = &child{cmd: cmd, dir: dir}, filepath.Join(dir, "sock")
	cmd.Args = []string{os.Args[0], "--socket", b.Socket, HostCommand, b.Device}
	cmd.Stderr = b.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C must not reach it
	if b.child.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a bakeryd: %w", err)
	}
	defer context.AfterFunc(b.ctx, func() { _ = stdout.Close() })()
	_, err = stdout.Read(make([]byte, 1))
	switch {
	case b.ctx.Err() != nil:
		return context.Cause(b.ctx)
	case err == nil:
		return nil
	}
	_ = cmd.Wait() // its result is the exit code
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return &cli.Failure{Code: code} // the child has reported its error
	}
	return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("serve %s in a child process: %w", b.Device, err)}
}

// end makes the child leave the lockspace and end.
func (c *child) end() error {
	defer os.RemoveAll(c.dir)
	if c.cmd.Process == nil {
		return nil
	}
	_ = c.stdin.Close()
	late := time.AfterFunc(ondevice.LeaveWithin, func() { _ = c.cmd.Process.Kill() })
	_ = c.cmd.Wait() // the child has reported its own errors
	if !late.Stop() {
		return fmt.Errorf("leave the lockspace on %s: the child did not leave within %v and will be declared dead by other hosts", c.cmd.Args[len(c.cmd.Args)-1], ondevice.LeaveWithin)
	}
	return nil
}

// HostCommand is the hidden command of the child of a bench.
const HostCommand = "bench-host"

// Serve serves the lockspace on device at socket as bakeryd does, until stdin ends. It writes to
// stdout when it serves. The parent notices errors after that itself, so they are silent.
func Serve(ctx context.Context, device, socket string, stdin io.Reader, stdout, stderr io.Writer) error {
	ln, err := server.Listen(socket)
	if err != nil {
		return ondevice.Failure(err)
	}
	defer ln.Close()
	log, serves := ondevice.Logger(stderr), false
	s := daemon.NewService(daemon.Config{Device: device, Logger: log, Keep: true}, func(*daemon.Host) {
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
		f.Hint = "to create a lockspace, run bakeryctl format " + device
	}
	return f
}
