package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// daemonProcess is a running daemon.
type daemonProcess struct {
	cmd  *exec.Cmd
	name string
	log  string
	over chan struct{} // closed at its end
	err  error         // result; valid after over
}

// start starts a daemon with its output in a log file.
func (s *setup) start(name string, env []string, args ...string) (*daemonProcess, error) {
	p := &daemonProcess{name: name, log: filepath.Join(s.work, name+".log"), over: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // this process passes on the terminal's signals
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.err = p.cmd.Wait(); close(p.over) }()
	return p, nil
}

func (p *daemonProcess) pid() int { return p.cmd.Process.Pid }

// said returns the end of the daemon's log.
func (p *daemonProcess) said() string {
	b, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// until polls for a condition.
func (p *daemonProcess) until(ctx context.Context, limit time.Duration, ready func() bool) error {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	timeout := time.After(limit)
	for !ready() {
		select {
		case <-t.C:
		case <-p.over:
			return fmt.Errorf("%s ended: %v: %s", p.name, p.err, p.said())
		case <-timeout:
			return fmt.Errorf("%s was not ready within %v: %s", p.name, limit, p.said())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// end ends the daemon with a signal, and kills it after a timeout.
func (p *daemonProcess) end(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.over:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.over
	}
}

// turnsOf runs a program that prints turns.
func turnsOf(ctx context.Context, env []string, args ...string) ([]turn, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return readTurns(&out)
}

// command runs a program that must succeed, and returns its output.
func command(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
