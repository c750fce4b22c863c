package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/lock"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/test/clienttest"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// soon is the timeout of tests. Only a join on a slow device, which may wait for a whole lease,
// takes nearly as long.
const soon = 2 * time.Minute

// asItself is the argv[0] that makes the test binary bakeryctl: signals and descriptors require a
// process of their own.
const asItself = "bakeryctl.under-test"

func init() {
	patience = cli.Patience{}
	if at := os.Getenv(stopAt); at != "" {
		supervise.Reached = func(step string) {
			if step != at {
				return
			}
			at = "" // only once
			_ = os.Unsetenv(stopAt)
			runtime.LockOSThread() // the signal stops this thread
			defer runtime.UnlockOSThread()
			_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
		}
	}
	switch filepath.Base(os.Args[0]) {
	case asItself:
		if o, ok := lock.Direct(os.Args[1:]); ok { // as bakeryctl-lock does
			os.Exit(cli.Report(os.Stderr, o.Run(context.Background(), os.Stdin, os.Stdout, os.Stderr)))
		}
		checkedMain()
	case supervise.AsStub:
		os.Exit(supervise.RunStub(os.Args[1:]))
	case supervise.AsGuardian:
		os.Exit(supervise.RunGuardian(os.Args[1:]))
	case asCounter:
		countInterrupts(len(os.Args) > 1)
	}
	// In the background these signals are ignored, and children would inherit that.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// stopAt names the step between grant and execve at which a process stops itself.
const stopAt = "BAKERYCTL_TEST_STOP_AT"

// wrapper is a bakeryctl that a test runs, without a controlling terminal unless the test provides
// one. Its output goes to files, so that it never blocks on the test.
type wrapper struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *os.File
	stdin          io.WriteCloser // of a followed process
	lines          *bufio.Reader  // of a followed process: standard output
	ended          chan struct{}
}

// prepare returns a process that is not started yet.
func prepare(t *testing.T, args ...string) *wrapper {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &wrapper{t: t, cmd: exec.Command(exe, args...), ended: make(chan struct{})}
	p.cmd.Args[0] = asItself
	p.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	p.stdout, p.stderr = p.file("stdout"), p.file("stderr")
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return p
}

func (p *wrapper) file(name string) *os.File {
	p.t.Helper()
	f, err := os.Create(filepath.Join(p.t.TempDir(), name))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = f.Close() })
	return f
}

func begin(t *testing.T, args ...string) *wrapper {
	t.Helper()
	p := prepare(t, args...)
	p.start()
	return p
}

// follow starts a process with pipes for standard input and, line by line, standard output.
func follow(t *testing.T, args ...string) *wrapper {
	t.Helper()
	p := prepare(t, args...)
	p.follow()
	return p
}

func (p *wrapper) follow() {
	p.t.Helper()
	r, w, err := os.Pipe()
	require.NoError(p.t, err)
	in, stdin, err := os.Pipe()
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _, _ = r.Close(), stdin.Close() })
	p.lines, p.stdin = bufio.NewReader(r), stdin
	p.cmd.Stdin, p.cmd.Stdout = in, w
	p.start()
	_, _ = in.Close(), w.Close()
}

func (p *wrapper) start() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Start())
	p.t.Cleanup(func() {
		// The process leads a session, so its commands are killed, too. If its pid exists after it
		// was reaped, the pid was reused, which happens only if the group is empty.
		pid := p.cmd.Process.Pid
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !supervise.IsClosed(p.ended) || err != nil {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		<-p.ended
	})
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
}

// wait returns the exit code, -1 if a signal killed the process.
func (p *wrapper) wait() int {
	p.t.Helper()
	within(p.t, p.ended, "the process to end")
	return p.cmd.ProcessState.ExitCode()
}

// exits blocks until the process has ended, and checks its exit code.
func (p *wrapper) exits(want int) {
	p.t.Helper()
	if code := p.wait(); code != want {
		p.t.Errorf("exit code %d, want %d; standard error %q", code, want, p.messages())
	}
}

func (p *wrapper) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, syscall.Kill(p.cmd.Process.Pid, s))
}

// expect checks the next line of standard output.
func (p *wrapper) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("line %q, want %q; standard error: %s", got, want, p.messages())
	}
}

// write writes a line to standard input.
func (p *wrapper) write(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *wrapper) line() string {
	p.t.Helper()
	var line string
	var err error
	read := make(chan struct{})
	go func() {
		line, err = p.lines.ReadString('\n')
		close(read)
	}()
	within(p.t, read, "a line")
	if err != nil {
		p.t.Fatalf("standard output ended with %q, %v; standard error: %s", line, err, p.messages())
	}
	return strings.TrimSuffix(line, "\n")
}

// rest reads standard output to its end.
func (p *wrapper) rest() string {
	p.t.Helper()
	var text []byte
	var err error
	read := make(chan struct{})
	go func() {
		text, err = io.ReadAll(p.lines)
		close(read)
	}()
	within(p.t, read, "the end of standard output")
	if err != nil && !errors.Is(err, syscall.EIO) { // a terminal that is not open any more
		p.t.Fatal(err)
	}
	return string(text)
}

// messages returns the standard error so far, without what a slow machine adds: the warning of a busy
// disk, and the line of a wait.
func (p *wrapper) messages() string {
	return waitLine.ReplaceAllString(slowJoin.ReplaceAllString(p.content(p.stderr), ""), "")
}

func (p *wrapper) content(f *os.File) string {
	p.t.Helper()
	text, err := os.ReadFile(f.Name())
	require.NoError(p.t, err)
	return string(text)
}

// slowJoin matches the warning of joining on a busy disk.
var slowJoin = regexp.MustCompile(`(?m)^time=.* msg="joining takes longer, waiting" .*\n`)

var waitLine = regexp.MustCompile(`(?m)^bakeryctl: waiting for ".*\n`)

// printed checks the whole output of an ended process.
func (p *wrapper) printed(t *testing.T, stdout, stderr string) {
	t.Helper()
	require.Equal(t, stdout, p.content(p.stdout))
	require.Equal(t, stderr, withoutStalls(p.messages()))
}

var logLine = regexp.MustCompile(`(?m)^time=\S+ level=.*\n`)

// withoutStalls removes the log lines from an output if the machine is expected to stall: a process
// that joins a lockspace logs a stall.
func withoutStalls(output string) string {
	if standstill.Expected() {
		return logLine.ReplaceAllString(output, "")
	}
	return output
}

func within(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		t.Fatalf("waited %v for %s", soon, what)
	}
}

// leaseEnds blocks until a lease that was renewed before this call is over.
func leaseEnds(t *testing.T, lease time.Duration) {
	t.Helper()
	end := clock.Boottime.Now() + lease
	eventually(t, "the end of the lease", func() bool { return clock.Boottime.Now() > end })
}

// eventually polls a condition until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for bound := time.Now().Add(soon); !holds(); time.Sleep(time.Millisecond) {
		require.False(t, time.Now().After(bound), "waited %v for %s", soon, what)
	}
}

var token = clienttest.Token

type (
	exchange    = clienttest.Exchange
	wanted      = clienttest.Request
	fakeBakeryd = clienttest.Bakeryd
)

// holding grants every lock for an hour, so that no test depends on renewals.
var holding = clienttest.Holding

// serve runs a fake bakeryd that answers every request by a script.
func serve(t *testing.T, script clienttest.Script) *fakeBakeryd {
	t.Helper()
	return clienttest.Serve(t, script)
}
