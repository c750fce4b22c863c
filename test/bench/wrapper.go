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
			return runUntilRequest(ctx, requests, bakeryctl, "lock", "--socket", requests.Addr().String(), "--nonblock", "bench", "--", "true")
		})},
	})
	return append(commands, starts...), err
}

// runUntilRequest runs a client of a socket, kills it when its request arrives, and returns the time
// from its start to its end.
func runUntilRequest(ctx context.Context, requests *net.UnixListener, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	from := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err := awaitRequest(requests)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return time.Since(from), err
}

// awaitRequest blocks until the first byte of a request arrives.
func awaitRequest(requests *net.UnixListener) error {
	_ = requests.SetDeadline(time.Now().Add(10 * time.Second)) // fails only if it is closed, as the next call
	conn, err := requests.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return err
}
