package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/bench"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/daemon/server"
)

// longestDir is the maximum length of the directory of a socket: the path of a socket is limited.
const longestDir = 64

// removeBy makes bakeryd remove a lock. A missing lock is no error.
func removeBy(socket, lock string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	err := client.New(socket).Remove(ctx, lock, client.RemoveOptions{Timeout: removeWithin})
	if errors.Is(err, client.ErrNoLock) {
		return nil
	}
	return err
}

// join joins the lockspace as hosts in this process: one next to the bakeryd in use, two next to a
// child. If that fails, it records what cannot be measured.
func (b *benching) join(ctx context.Context, device string) error {
	n := 1
	if b.child != nil {
		n = 2
	}
	joined, err := load.Join(ctx, n, daemon.Config{Device: device, Logger: ondevice.Logger(b.stderr)})
	b.inside = joined
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(b.inside) == 0 {
		reason := whyNotJoined(err)
		b.why[bench.InProcess], b.why[bench.HandOver] = reason, reason
	}
	return nil
}

// whyNotJoined returns why this process could not join, and the remedy.
func whyNotJoined(err error) string {
	remedy := ""
	switch {
	case errors.Is(err, lease.ErrFull):
		remedy = "; stop a host, or format for more --hosts"
	case errors.Is(err, fs.ErrNotExist):
		remedy = "; run it where the device of bakeryd is visible"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		remedy = "; run it as root, or as the user of bakeryd"
	}
	return "this process could not join as a host: " + err.Error() + remedy
}

// failure returns the error of a bench with its exit code and hint.
func failure(ctx context.Context, err error) error {
	by, interrupted := errors.AsType[signals.Interruption](context.Cause(ctx))
	f, failed := errors.AsType[*cli.Failure](err)
	_, refused := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return nil
	case interrupted:
		return &cli.Failure{Code: cli.ExitSignal + int(by.Signal)}
	case failed:
		return f
	case refused, errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrProtocol):
		return call.Failure(err)
	}
	return ondevice.Failure(err)
}

// child is a process that serves as bakeryd does.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer // the child ends when this is closed, thus with this process
	dir   string    // of its socket
}

// childStatus is the message of the child when it serves, or cannot.
type childStatus struct {
	Serves bool   `json:"serves"`
	Code   int    `json:"code"`
	Error  string `json:"error"`
	Hint   string `json:"hint"`
}

// startChild starts a child that serves the lockspace at --device, and blocks until it does.
func (b *benching) startChild(ctx context.Context) error {
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
	c := &child{cmd: exec.Command(self), dir: dir}
	b.child, b.socket = c, filepath.Join(dir, "sock")
	c.cmd.Args = []string{os.Args[0], "--socket", b.socket, HostCommand, b.o.Device}
	c.cmd.Stderr = b.o.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C must not reach it
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start a bakeryd: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = stdout.Close() })()
	var s childStatus
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		err = json.Unmarshal(line, &s)
	}
	switch {
	case err != nil:
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("serve %s in a child process: %w", b.o.Device, err)}
	case !s.Serves:
		return &cli.Failure{Code: s.Code, Err: errors.New(s.Error), Hint: s.Hint}
	}
	return nil
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

// Serve serves the lockspace on device at socket as bakeryd does, until stdin ends. It reports to
// the parent on stdout that it serves, or why it cannot.
func Serve(ctx context.Context, device, socket string, stdin io.Reader, stdout, stderr io.Writer) error {
	report := func(w childStatus) { _ = json.NewEncoder(stdout).Encode(w) }
	// The parent reads only the first report.
	err := serveLockspace(ctx, device, socket, stdin, ondevice.Logger(stderr), func() { report(childStatus{Serves: true}) })
	if err == nil {
		return nil
	}
	f := &cli.Failure{Code: cli.ExitNoDevice, Hint: ondevice.Failure(err).Hint}
	switch {
	case errors.Is(err, lease.ErrFull):
		f.Code, f.Hint = cli.ExitUnavailable, "stop a host, or format for more --hosts"
	case errors.Is(err, fs.ErrNotExist):
		f.Hint = "to create a lockspace, run bakeryctl format " + device
	}
	// The parent ignores this report if the child served before: it sees its own errors.
	report(childStatus{Code: f.Code, Error: err.Error(), Hint: f.Hint})
	return f
}

func serveLockspace(ctx context.Context, device, socket string, stdin io.Reader, log *slog.Logger, joined func()) error {
	ln, err := server.Listen(socket)
	if err != nil {
		return err
	}
	defer ln.Close()
	s := daemon.NewService(daemon.Config{Device: device, Logger: log, Keep: true}, func(*daemon.Host) { joined() })
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		s.Drain()
	}()
	srv := server.New(server.Config{Host: s.Serving, Log: log, Events: s.Events()})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	err = s.Run(ctx)
	return errors.Join(err, srv.Shutdown(), <-served)
}
