package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A host's processes have its directory as working directory.

// processesIn returns the processes whose working directory is dir or, if asked, below it.
func processesIn(dir string, below bool) (pids []int) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		cwd, err := os.Readlink(proc + "/cwd")
		if err == nil && (cwd == dir || below && strings.HasPrefix(cwd, dir+"/")) && !isZombie(proc) {
			if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func isZombie(proc string) bool {
	b, err := os.ReadFile(proc + "/stat")
	_, after, ok := strings.Cut(string(b), ") ")
	return err != nil || ok && strings.HasPrefix(after, "Z")
}

// signalAll sends a signal to all processes in a directory, and to those that they start meanwhile.
func signalAll(dir string, signal syscall.Signal) {
	sent := map[int]bool{}
	for more := true; more; {
		more = false
		for _, pid := range processesIn(dir, false) {
			if !sent[pid] {
				_ = syscall.Kill(pid, signal)
				sent[pid], more = true, true
			}
		}
	}
}

// program returns the program of a process; empty: it has ended.
func program(pid int) string {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return strings.TrimSuffix(exe, " (deleted)")
}

// parent returns the parent of a process; 0: it has ended.
func parent(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ")
	if fields := strings.Fields(after); len(fields) > 1 {
		n, _ := strconv.Atoi(fields[1])
		return n
	}
	return 0
}

// process is a program that this process started.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed at its end
}

// start starts a program in a directory, in its own process group, as a user; nil: the current one.
// The program ends with this process.
func start(dir, log string, user *syscall.Credential, argv ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = dir, programEnv(), out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: user}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // cmd.ProcessState has the result, too
		close(p.ended)
	}()
	return p, nil
}

func programEnv() []string { return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"} }

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// code waits for the end of the process, at most for patience, and returns its exit code.
func (p *process) code(ctx context.Context, patience time.Duration) (int, error) {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return 0, fmt.Errorf("%s has not ended within %v", filepath.Base(p.cmd.Path), patience)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// output runs a program and returns its output and its exit code.
func output(ctx context.Context, argv ...string) (string, int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = programEnv()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), cmd.ProcessState.ExitCode(), err
}

// pauseFor sleeps, unless ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

var errLate = errors.New("it takes too long")

// until polls for a condition.
func until(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	for end := time.Now().Add(limit); !holds(); {
		if time.Now().After(end) {
			return fmt.Errorf("%w: not within %v: %s", errLate, limit, what)
		}
		if err := pauseFor(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
