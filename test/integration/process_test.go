//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/schematest"
)

// process is a program that a test has started, in its own process group. A test waits for its end,
// not for that of its children.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	name   string
	stdin  *os.File // standard input; closing it ends the program
	stderr string   // path of its standard error
	ended  chan struct{}

	mu    sync.Mutex // guards the fields below
	lines []string   // complete lines of standard output
	eof   bool       // standard output is closed in all processes
	taken int        // lines returned so far
}

// launch starts a program. The end of the test kills it and its process group.
func launch(t *testing.T, dir string, argv ...string) *process {
	t.Helper()
	p := &process{t: t, name: filepath.Base(argv[0]), ended: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir, p.cmd.Env = dir, testEnv
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	errors, err := os.CreateTemp(dir, p.name+".stderr")
	require.NoError(t, err)
	defer errors.Close()
	stdin, p0, err := os.Pipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, p1, err := os.Pipe()
	require.NoError(t, err)
	defer p1.Close()
	p.stdin, p.stderr = p0, errors.Name()
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, p1, errors
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // cmd.ProcessState has the result, too
		close(p.ended)
	}()
	var reader sync.WaitGroup
	reader.Go(func() { p.read(stdout) })
	t.Cleanup(func() {
		p.stdin.Close()
		p.killGroup()
		<-p.ended
		reader.Wait()
		if t.Failed() {
			t.Logf("%s (exit code %d) said:\n%s", strings.Join(argv, " "), p.cmd.ProcessState.ExitCode(), p.said())
		}
	})
	return p
}

// killGroup kills what is left of the process group. If another process has the leader's number
// after the leader was reaped, the group is empty: only then does the kernel reuse the number.
func (p *process) killGroup() {
	pid := p.cmd.Process.Pid
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); p.running() || err != nil {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

func (p *process) read(stdout *os.File) {
	defer stdout.Close()
	s := bufio.NewScanner(stdout)
	for s.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
	}
	p.mu.Lock()
	p.eof = true
	p.mu.Unlock()
}

// next returns the next line of standard output, if there is one yet.
func (p *process) next() (line string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == len(p.lines) {
		return "", false
	}
	p.taken++
	return p.lines[p.taken-1], true
}

// line waits for the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	var line string
	eventually(p.t, p.name+" prints a line", func() (ok bool) {
		line, ok = p.next()
		return ok
	})
	return line
}

// silent reports whether standard output is closed: the program and all its children have ended.
func (p *process) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.eof
}

// said returns the program's standard error so far.
func (p *process) said() string {
	b, err := os.ReadFile(p.stderr)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// exits waits for the program's end and checks its exit code.
func (p *process) exits(code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s has not ended within %v", p.name, patience)
	}
	require.Equal(p.t, code, p.cmd.ProcessState.ExitCode(), "exit code of %s, which said: %s", p.cmd, p.said())
}

// result is the outcome of a program.
type result struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// execute runs a program to its end.
func execute(t *testing.T, argv ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = base, testEnv
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	require.NoError(t, cmd.Start())
	late := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait()
	r := result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), time.Since(began)}
	checkJSON(t, argv, r)
	return r
}

// checkJSON checks the output of a bakeryctl with --json.
func checkJSON(t *testing.T, argv []string, r result) {
	t.Helper()
	if filepath.Base(argv[0]) != "bakeryctl" || !slices.Contains(argv, "--json") || r.code != 0 {
		return
	}
	if argv = argv[1:]; argv[0] == "--socket" {
		argv = argv[2:]
	}
	command := argv[0]
	if command == "value" || command == "disk" {
		command += " " + argv[1]
	}
	require.NoError(t, schematest.Output(command, []byte(r.stdout)), "%q", argv)
}

// must runs a program that must succeed, and returns its output.
func must(t *testing.T, argv ...string) string {
	t.Helper()
	r := execute(t, argv...)
	require.Zero(t, r.code, "%q says: %s", argv, r.stderr)
	return r.stdout
}
