package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// sanlockNotes are remarks on sanlock in addition to its times.
type sanlockNotes struct {
	Refused     string  `json:"refused,omitempty"` // how it ended when it could not set its limits; empty: it did not
	JoinSeconds float64 `json:"join_seconds"`
}

// sanlockLog is the daemon's fixed log file.
const sanlockLog = "/var/log/sanlock.log"

// sanlock starts the daemon, and joins it to a lockspace in a file of the disk. It runs without the
// watchdog, real-time priority and locked memory. Even so it asks for an unlimited RLIMIT_MEMLOCK,
// and ends without CAP_SYS_RESOURCE. Then it runs with a setrlimit(2) that does nothing.
func (s *setup) sanlock(ctx context.Context, each time.Duration, out *rivalry) (*rival, error) {
	program, loop := filepath.Join(s.deb, "usr/sbin/sanlock"), filepath.Join(s.bin, "sanlock-client")
	for _, f := range []string{program, loop} {
		if _, err := os.Stat(f); err != nil {
			return nil, skipped(err.Error())
		}
	}
	dir := filepath.Join(s.work, "sanlock")
	if err := os.MkdirAll(dir, 0o775); err != nil {
		return nil, err
	}
	libraries, err := filepath.Glob(filepath.Join(s.deb, "usr/lib/*-linux-gnu*"))
	if err != nil || len(libraries) == 0 {
		return nil, skipped("no libraries of sanlock below " + s.deb)
	}
	env := []string{"LD_LIBRARY_PATH=" + libraries[0], "SANLOCK_RUN_DIR=" + dir}
	logged := false
	if _, err := os.Stat(sanlockLog); err == nil {
		logged = true
	}
	p, notes, err := s.startSanlock(ctx, program, dir, env)
	if err != nil {
		return nil, err
	}
	end := func() {
		// With force, because it is in a lockspace, and waited for: a SIGTERM would cancel the
		// force.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		_, _ = command(ctx, env, program, "client", "shutdown", "-f", "1", "-w", "1")
		p.end(unix.SIGTERM)
		if !logged {
			_ = os.Remove(sanlockLog)
		}
	}
	file := filepath.Join(s.work, "sanlock.img")
	const offset = "1048576"
	begun := time.Time{}
	for _, args := range [][]string{
		{"dd", "if=/dev/zero", "of=" + file, "bs=1M", "count=2", "conv=fsync", "status=none"},
		{program, "direct", "init", "-s", "bench:0:" + file + ":0"},
		{program, "direct", "init", "-r", "bench:lock:" + file + ":" + offset},
		{program, "client", "add_lockspace", "-s", "bench:1:" + file + ":0"},
	} {
		begun = time.Now()
		if _, err := command(ctx, env, args...); err != nil {
			end()
			return nil, err
		}
	}
	notes.JoinSeconds = time.Since(begun).Seconds()
	out.Sanlock = notes
	return &rival{func() ([]turn, error) {
		return turnsOf(ctx, env, loop, "bench", "lock", file, offset, "20", strconv.FormatInt(each.Milliseconds(), 10))
	}, end}, nil
}

// startSanlock starts the daemon unchanged, and if that fails, without its limits.
func (s *setup) startSanlock(ctx context.Context, program, dir string, env []string) (*daemonProcess, *sanlockNotes, error) {
	notes := &sanlockNotes{}
	for _, preload := range []string{"", filepath.Join(s.bin, "nolimit.so")} {
		with := env
		if preload != "" {
			with = append(with[:len(with):len(with)], "LD_PRELOAD="+preload)
		}
		p, err := s.start("sanlock", with, program, "daemon", "-D", "-w", "0", "-h", "0", "-l", "0", "-U", "root", "-G", "root", "-L", "-1", "-S", "-1")
		if err != nil {
			return nil, nil, err
		}
		err = p.until(ctx, 10*time.Second, func() bool {
			_, err := os.Stat(filepath.Join(dir, "sanlock.sock"))
			return err == nil
		})
		if err == nil {
			return p, notes, nil
		}
		p.end(unix.SIGTERM)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		notes.Refused = p.said()
	}
	return nil, nil, skipped("it does not run, even without setting limits: " + notes.Refused)
}
