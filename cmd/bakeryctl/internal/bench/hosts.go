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
	"sync"
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
	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

// longestDir is how long the path of a directory may be in which a socket is to be: that of a socket is limited.
const longestDir = 64

// removeBy has bakeryd remove a lock; one that is not there is.
func removeBy(socket, lock string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	err := client.New(socket).Remove(ctx, lock, client.RemoveOptions{Timeout: removeWithin})
	if errors.Is(err, client.ErrNoLock) {
		return nil
	}
	return err
}

// join joins the lockspace as hosts in this process: one beside a bakeryd that others use, two beside a child. Where that
// cannot be, it is noted what cannot be measured.
func (b *benching) join(ctx context.Context, device string) error {
	n := 1
	if b.child != nil {
		n = 2
	}
	joined, errs := make([]*daemon.Daemon, n), make([]error, n)
	var joining sync.WaitGroup
	for i := range n {
		joining.Go(func() {
			joined[i] = daemon.New(daemon.Config{Device: device, Logger: ondevice.Logger(b.stderr)})
			errs[i] = joined[i].Join(ctx)
		})
	}
	joining.Wait()
	for i, err := range errs {
		if err == nil {
			b.inside = append(b.inside, joined[i])
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(b.inside) == 0 {
		reason := whyNotJoined(errs[0])
		b.why[bench.InProcess], b.why[bench.HandOver] = reason, reason
	}
	return nil
}

// whyNotJoined says why this process is no host, and what would make it one.
func whyNotJoined(err error) string {
	remedy := ""
	switch {
	case errors.Is(err, lease.ErrFull):
		remedy = "; stop a host, or format for more --hosts"
	case errors.Is(err, fs.ErrNotExist):
		remedy = "; run it where bakeryd sees its device"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		remedy = "; run it as root, or as the user of bakeryd"
	}
	return "it takes a host in this process: " + err.Error() + remedy
}

// failure finds the exit code and the remedy for an error of a bench.
func failure(ctx context.Context, err error) error {
	var (
		by      signals.Interruption
		f       *cli.Failure
		refusal *client.Error
	)
	switch {
	case err == nil:
		return nil
	case errors.As(context.Cause(ctx), &by):
		return &cli.Failure{Code: cli.ExitSignal + int(by.Signal)}
	case errors.As(err, &f):
		return f
	case errors.As(err, &refusal), errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrProtocol):
		return call.Failure(err)
	}
	return ondevice.Failure(err)
}

// child is a process that serves as bakeryd does.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer // it ends with that, and so with this process
	dir   string    // of its socket
	ended chan struct{}
}

// childWord is what the child says once it serves, or cannot.
type childWord struct {
	Serves bool   `json:"serves"`
	Code   int    `json:"code"`
	Error  string `json:"error"`
	Hint   string `json:"hint"`
}

// startChild has a child serve the lockspace at --device, and waits until it does.
func (b *benching) startChild(ctx context.Context) error {
	dev, _, _, err := lockspace.OpenLockspace(b.o.Device, true)
	if err != nil {
		f := ondevice.Failure(err)
		if errors.Is(err, fs.ErrNotExist) {
			f.Hint = "bakeryctl format " + b.o.Device + " makes a lockspace there"
		}
		return f
	}
	if err := dev.Close(); err != nil {
		return err
	}
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
	c := &child{cmd: exec.Command(self), dir: dir, ended: make(chan struct{})}
	b.child, b.socket = c, filepath.Join(dir, "sock")
	c.cmd.Args = []string{os.Args[0], "--socket", b.socket, HostCommand, b.o.Device}
	c.cmd.Stderr = b.o.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's ^C is not for it
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.stdin = stdin
	words, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer words.Close()
	c.cmd.Stdout = w
	err = c.cmd.Start()
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("start a bakeryd: %w", err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	defer context.AfterFunc(ctx, func() { _ = words.SetReadDeadline(time.Unix(1, 0)) })()
	var word childWord
	line, err := bufio.NewReader(words).ReadBytes('\n')
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		err = json.Unmarshal(line, &word)
	}
	switch {
	case err != nil:
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("the child that was to serve %s ended: %w", b.o.Device, err)}
	case !word.Serves:
		return &cli.Failure{Code: word.Code, Err: errors.New(word.Error), Hint: word.Hint}
	}
	return nil
}

// end has the child leave the lockspace and end.
func (c *child) end() error {
	defer os.RemoveAll(c.dir)
	if c.cmd.Process == nil {
		return nil
	}
	_ = c.stdin.Close()
	select {
	case <-c.ended:
		return nil // what it had to say it has said
	case <-time.After(ondevice.LeaveWithin):
		_ = c.cmd.Process.Kill()
		<-c.ended
		return fmt.Errorf("the child that served %s did not leave within %v, and is dead to other hosts", c.cmd.Args[len(c.cmd.Args)-1], ondevice.LeaveWithin)
	}
}

// HostCommand is the hidden command by which bakeryctl is the child of a bench.
const HostCommand = "bench-host"

// Serve serves the lockspace on device at socket as bakeryd does, until stdin ends. It tells the
// parent on stdout that it serves, or why it cannot.
func Serve(ctx context.Context, device, socket string, stdin io.Reader, stdout, stderr io.Writer) error {
	tell := func(w childWord) { _ = json.NewEncoder(stdout).Encode(w) }
	// Of a later term nobody reads that it serves.
	err := serveLockspace(ctx, device, socket, stdin, ondevice.Logger(stderr), func() { tell(childWord{Serves: true}) })
	if err == nil {
		return nil
	}
	f := &cli.Failure{Code: cli.ExitNoDevice, Hint: ondevice.Hint(err)}
	if errors.Is(err, lease.ErrFull) {
		f.Code, f.Hint = cli.ExitUnavailable, "stop a host, or format for more --hosts"
	}
	// If it served before nobody reads this, who asked for the child sees to its own errors.
	tell(childWord{Code: f.Code, Error: err.Error(), Hint: f.Hint})
	return f
}

func serveLockspace(ctx context.Context, device, socket string, stdin io.Reader, log *slog.Logger, joined func()) error {
	ln, err := daemon.Listen(socket)
	if err != nil {
		return err
	}
	defer ln.Close()
	s := daemon.NewService(daemon.Config{Device: device, Logger: log, Keep: true}, func(*daemon.Daemon) { joined() })
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		s.Drain()
	}()
	srv := daemon.NewServer(log, s.Joined, s.Events())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	err = s.Run(ctx)
	return errors.Join(err, srv.Shutdown(), <-served)
}
