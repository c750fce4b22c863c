package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/test/bench/scale"
)

// scale measures in memory, each point in a separate process.
func (s *setup) scale(ctx context.Context) (*scale.Result, error) {
	hosts, locks, waiters, joiners, lease, hold := scale.Hosts, scale.Locks, scale.Waiters, scale.Joiners, 6*time.Second, 3*time.Second
	if s.quick {
		hosts, locks, waiters, joiners = hosts[:2], locks[:2], waiters[:2], joiners[:1]
		lease, hold = 2*time.Second, 200*time.Millisecond
	}
	out := &scale.Result{}
	for _, h := range hosts {
		for _, l := range locks {
			p, err := s.point(ctx, h, l, lease)
			if err != nil {
				return nil, fmt.Errorf("%d hosts, %d locks: %w", h, l, err)
			}
			out.Points = append(out.Points, p)
		}
	}
	dir := func(name string) string { return filepath.Join(s.work, "scale-"+name) }
	var err error
	if out.Waiters, err = scale.Wait(ctx, dir("waiters"), waiters, hold, 30*time.Second); err != nil {
		return nil, fmt.Errorf("waiters: %w", err)
	}
	for _, n := range joiners {
		j, err := scale.Join(ctx, dir(fmt.Sprintf("join-%d", n)), n, 30*time.Second)
		if err != nil {
			return nil, fmt.Errorf("%d hosts join: %w", n, err)
		}
		out.Joining = append(out.Joining, j)
	}
	return out, nil
}

func (s *setup) point(ctx context.Context, hosts, locks int, lease time.Duration) (p scale.Point, err error) {
	dir := filepath.Join(s.work, fmt.Sprintf("scale-%d-%d", hosts, locks))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return p, err
	}
	cmd := exec.CommandContext(ctx, s.self(), "point", "--dir", dir, "--hosts", strconv.Itoa(hosts), "--locks", strconv.Itoa(locks),
		"--lease", lease.String())
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}
