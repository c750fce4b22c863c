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
	crowds := scale.Crowds
	hosts, locks, waiters, joiners, lease, hold := scale.Hosts, scale.Locks, scale.Waiters, scale.Joiners, 6*time.Second, 3*time.Second
	if s.quick {
		hosts, locks, waiters, joiners = hosts[:2], locks[:2], waiters[:2], joiners[:1]
		crowds = crowds[:2]
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
	for _, c := range crowds {
		g, err := s.grant(ctx, c, hold)
		if err != nil {
			return nil, fmt.Errorf("grants in the crowd %+v: %w", c, err)
		}
		out.Grants = append(out.Grants, g)
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
	err = s.separately(ctx, &p, "point", fmt.Sprintf("scale-%d-%d", hosts, locks), "--hosts", strconv.Itoa(hosts), "--locks", strconv.Itoa(locks),
		"--lease", lease.String())
	return p, err
}

func (s *setup) grant(ctx context.Context, c scale.Crowd, lasting time.Duration) (g scale.Grant, err error) {
	err = s.separately(ctx, &g, "grant", fmt.Sprintf("grant-%d-%d-%d-%d", c.Hosts, c.Locks, c.Waiters, c.Lookers), "--hosts", strconv.Itoa(c.Hosts),
		"--locks", strconv.Itoa(c.Locks), "--waiters", strconv.Itoa(c.Waiters), "--lookers", strconv.Itoa(c.Lookers), "--lasting", lasting.String())
	return g, err
}

// separately runs a command of this program in another process, and decodes its result.
func (s *setup) separately(ctx context.Context, result any, command, dir string, args ...string) error {
	dir = filepath.Join(s.work, dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.self(), append([]string{command, "--dir", dir}, args...)...)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}
