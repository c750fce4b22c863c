package client_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/server"
)

// asBakeryd, if set, is the directory for which this test binary runs bakeryd: a restart needs a
// separate process.
const asBakeryd = "BAKERYD_UNDER_TEST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asBakeryd); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, "bakeryd:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	// Most tests only wait, so more than one per processor run at a time. A fuzz worker does not
	// wait.
	if flag.Lookup("test.fuzz").Value.String() == "" {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	disk, err := diskDir()
	switch {
	case err == nil:
		here = &host{disk: disk}
		defer func() {
			if err := here.remove(); err != nil {
				fmt.Fprintln(os.Stderr, "FAIL: the bakeryd of the examples:", err)
				code = 1
			}
		}()
	case os.Getenv("CI") == "true":
		fmt.Fprintln(os.Stderr, "FAIL: CI skips nothing:", err)
		return 1
	default:
		fmt.Fprintln(os.Stderr, "SKIP: the examples:", err)
		if err := flag.Set("test.skip", "^Example"); err != nil {
			panic(err)
		}
	}
	return m.Run()
}

// diskDir returns a directory for a lockspace; tmpfs has no direct IO.
func diskDir() (string, error) {
	for _, dir := range []string{os.TempDir(), "/var/tmp", "."} {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err == nil && fs.Type != unix.TMPFS_MAGIC && unix.Access(dir, unix.W_OK) == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New("TMPDIR, /var/tmp and the working directory have no direct IO")
}

// here is the host of the examples.
var here *host

// host runs a bakeryd process.
type host struct {
	disk    string
	dir     string // all of bakeryd's files; empty: not started yet
	cmd     *exec.Cmd
	stdin   io.Closer
	leaving bool // it was told to leave
}

// socket returns the socket of a running bakeryd; a program uses client.DefaultSocket.
func socket() string {
	if err := here.serving(); err != nil {
		panic(err)
	}
	return here.dir + "/s"
}

// restart kills bakeryd and starts another one.
func restart() {
	if err := errors.Join(here.kill(), here.start()); err != nil {
		panic(err)
	}
}

// evict makes the host leave the lockspace, as an operator may.
func evict() {
	here.leaving = true
	if err := here.cmd.Process.Signal(syscall.SIGINT); err != nil {
		panic(err)
	}
}

func (h *host) serving() (err error) {
	switch {
	case h.dir == "":
		if h.dir, err = os.MkdirTemp(h.disk, "b"); err != nil {
			return err
		}
		o := format.Options{Hosts: 4, Locks: 64, Lease: 10 * time.Second}
		if _, err = format.Format(context.Background(), []string{h.device()}, o); err != nil {
			return err
		}
	case h.leaving:
		if err := h.cmd.Wait(); err != nil {
			return err
		}
	default:
		return nil
	}
	return h.start()
}

func (h *host) device() string { return filepath.Join(h.dir, "lockspace") }

// start starts bakeryd and waits until it has joined.
func (h *host) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	h.cmd, h.leaving = exec.Command(exe), false
	h.cmd.Env = append(os.Environ(), asBakeryd+"="+h.dir, "GORACE=atexit_sleep_ms=0")
	h.cmd.Stderr = os.Stderr
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := h.cmd.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return errors.Join(fmt.Errorf("bakeryd does not join: %w", err), h.cmd.Wait())
	}
	return nil
}

func (h *host) kill() error {
	if err := h.cmd.Process.Kill(); err != nil {
		return err
	}
	if err := h.cmd.Wait(); h.cmd.ProcessState.ExitCode() != -1 {
		return fmt.Errorf("bakeryd has ended: %w", err)
	}
	return nil
}

func (h *host) remove() error {
	if h.dir == "" {
		return nil
	}
	var err error
	if !h.leaving {
		err = h.kill()
	} else {
		err = h.cmd.Wait()
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

// serve is a small bakeryd. It ends with the test that started it.
func serve(dir string) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s := daemon.NewService(daemon.Config{
		Devices: []string{filepath.Join(dir, "lockspace")}, HostID: 1, Name: "example", RuntimeDir: dir, StateDir: dir, Keep: true, Logger: log,
	}, func(*daemon.Host) { fmt.Println("serving") })
	ln, err := server.Listen(dir + "/s")
	if err != nil {
		return err
	}
	srv := server.New(server.Config{Host: s.Serving, Log: log})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	go func() {
		<-interrupts
		s.Drain()
	}()
	err = s.Run(context.Background())
	return errors.Join(err, srv.Shutdown(), <-served)
}
