package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// wrapper compares whole commands, from start to end: flock FILE true, bakeryctl lock NAME -- true,
// and true. It also compares the start of bakeryctl lock with an empty Go program.
func (s *setup) wrapper(ctx context.Context) ([]*series, error) {
	rounds, each := 12, 40
	if s.quick {
		rounds, each = 2, 3
	}
	flock, err := exec.LookPath("flock")
	if err != nil {
		return nil, skipped(err.Error())
	}
	l, err := s.newLockspace(ctx, "wrapper", 16, 3)
	if err != nil {
		return nil, err
	}
	defer l.end()
	requests, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(s.work, "requests"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer requests.Close()

	times := func(one func() (time.Duration, error)) func() ([]turn, error) {
		return func() (turns []turn, err error) {
			for n := range each + 2 {
				took, err := one()
				if err != nil {
					return nil, err
				}
				if n >= 2 { // the first ones warm up
					turns = append(turns, turn{lock: took})
				}
			}
			return turns, nil
		}
	}
	runs := func(args ...string) func() ([]turn, error) {
		return times(func() (time.Duration, error) {
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Stderr = os.Stderr
			from := time.Now()
			err := cmd.Run()
			return time.Since(from), err
		})
	}
	bakeryctl, file := filepath.Join(s.bin, "bakeryctl"), filepath.Join(s.work, "flock")
	commands, err := compete(rounds, []contender{
		{"flock", runs(flock, file, "true")},
		{"bakeryctl lock", runs(bakeryctl, "lock", "--socket", l.hosts[0].socket, "bench", "--", "true")},
		{"true", runs("true")},
	})
	if err != nil {
		return nil, err
	}
	starts, err := compete(rounds, []contender{
		{"empty", runs(filepath.Join(s.bin, "empty"))},
		{"start", times(func() (time.Duration, error) {
			return untilRequest(ctx, requests, bakeryctl, "lock", "--socket", requests.Addr().String(), "--nonblock", "bench", "--", "true")
		})},
	})
	return append(commands, starts...), err
}

// untilRequest runs a client of a socket until its request arrives, and returns the time that took.
// It then kills the client, because the end of the client is not to be measured.
func untilRequest(ctx context.Context, requests *net.UnixListener, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	from := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	took, err := arrival(requests, from)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return took, err
}

// arrival blocks until the first byte of a request arrives, and returns the time since from.
func arrival(requests *net.UnixListener, from time.Time) (time.Duration, error) {
	_ = requests.SetDeadline(from.Add(10 * time.Second)) // fails only if it is closed, as the next call
	conn, err := requests.Accept()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return time.Since(from), err
}
