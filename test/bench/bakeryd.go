package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lockspace is a lockspace in a file on the disk, with its bakeryds.
type lockspace struct {
	s     *setup
	file  string
	hosts []*bakeryd
}

type bakeryd struct {
	*daemonProcess
	socket string
}

// newLockspace formats a file for a number of hosts and starts some of them.
func (s *setup) newLockspace(ctx context.Context, name string, size, hosts int, more ...string) (l *lockspace, err error) {
	l = &lockspace{s: s, file: filepath.Join(s.work, name+".img")}
	format := append([]string{filepath.Join(s.bin, "bakeryctl"), "format", l.file, "--hosts", strconv.Itoa(size), "--name", name}, more...)
	if _, err := command(ctx, nil, format...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.end()
		}
	}()
	for id := 1; id <= hosts; id++ {
		if err := l.join(ctx, name, id); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// join starts another host; before, for example strace(1), starts its bakeryd.
func (l *lockspace) join(ctx context.Context, name string, id int, before ...string) error {
	name = fmt.Sprintf("%s-%d", name, id)
	dir := filepath.Join(l.s.work, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b := &bakeryd{socket: filepath.Join(dir, "socket")}
	args := append(before, filepath.Join(l.s.bin, "bakeryd"), "--device", l.file, "--host-id", strconv.Itoa(id), "--name", name,
		"--socket", b.socket, "--runtime-dir", dir, "--state-dir", dir)
	var err error
	if b.daemonProcess, err = l.s.start(name, nil, args...); err != nil {
		return err
	}
	l.hosts = append(l.hosts, b)
	return b.until(ctx, time.Minute, func() bool {
		_, err := command(ctx, nil, filepath.Join(l.s.bin, "bakeryctl"), "status", "--socket", b.socket)
		return err == nil
	})
}

// end makes all hosts leave.
func (l *lockspace) end() {
	var leaving sync.WaitGroup
	for _, h := range l.hosts {
		leaving.Go(func() { h.end(unix.SIGTERM) })
	}
	leaving.Wait()
	_ = os.Remove(l.file)
}

// loop returns the command of a client that locks and unlocks repeatedly.
func (l *lockspace) loop(host int, d time.Duration) []string {
	return []string{l.s.self(), "loop", "--socket", l.hosts[host].socket, "--for", d.String()}
}

func (s *setup) self() string { return filepath.Join(s.bin, "bench") }

// bench runs bakeryctl bench and returns its JSON unchanged.
func (s *setup) bench(ctx context.Context) (any, error) {
	bakeryctl := filepath.Join(s.bin, "bakeryctl")
	if _, err := command(ctx, nil, bakeryctl, "bench", "--help"); err != nil {
		return nil, skipped("this bakeryctl has no bench")
	}
	l, err := s.newLockspace(ctx, "bench", 16, 3)
	if err != nil {
		return nil, err
	}
	defer l.end()
	each := "5s"
	if s.quick {
		each = "500ms"
	}
	out, err := command(ctx, nil, bakeryctl, "bench", "--json", "--duration", each, "--socket", l.hosts[0].socket)
	if err != nil {
		return nil, err
	}
	var r json.RawMessage
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return nil, fmt.Errorf("bakeryctl bench --json: %w", err)
	}
	return r, nil
}
