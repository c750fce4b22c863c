package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// wrapper compares whole commands, from start to end: flock FILE true, bakeryctl lock NAME -- true,
// and true.
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
	file := filepath.Join(s.work, "flock")
	runs := func(args ...string) func() ([]turn, error) {
		return func() (turns []turn, err error) {
			for n := range each + 2 {
				cmd := exec.CommandContext(ctx, args[0], args[1:]...)
				cmd.Stderr = os.Stderr
				from := time.Now()
				if err := cmd.Run(); err != nil {
					return nil, err
				}
				if n >= 2 { // the first ones warm up
					turns = append(turns, turn{lock: time.Since(from)})
				}
			}
			return turns, nil
		}
	}
	return compete(rounds, []contender{
		{"flock", runs(flock, file, "true")},
		{"bakeryctl lock", runs(filepath.Join(s.bin, "bakeryctl"), "lock", "--socket", l.hosts[0].socket, "bench", "--", "true")},
		{"true", runs("true")},
	})
}
