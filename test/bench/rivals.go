package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// rivalry is the result of the rounds. bakeryd is the first of the series, to which the ratios
// refer.
type rivalry struct {
	Series  []*series     `json:"series"`
	Left    []omission    `json:"left_out"`
	Sanlock *sanlockNotes `json:"sanlock,omitempty"`
}

// omission is a rival that could not be measured.
type omission struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// rival is a running daemon and its client.
type rival struct {
	run func() ([]turn, error)
	end func()
}

// rivals compares bakeryd, the bare requests, etcd and sanlock in alternating rounds.
func (s *setup) rivals(ctx context.Context) (out *rivalry, err error) {
	rounds, each := 9, 2*time.Second
	if s.quick {
		rounds, each = 2, 100*time.Millisecond
	}
	out = &rivalry{Left: []omission{}}
	starts := []struct {
		name string
		f    func(context.Context, time.Duration, *rivalry) (*rival, error)
	}{{"bakeryd", s.bakeryd}, {"floor", s.floor}, {"etcd", s.etcd}, {"sanlock", s.sanlock}}
	var busy sync.WaitGroup
	all, errs := make([]*rival, len(starts)), make([]error, len(starts))
	for i, r := range starts { // starting takes long, so all start at once
		busy.Go(func() { all[i], errs[i] = r.f(ctx, each, out) })
	}
	busy.Wait()
	defer func() {
		for _, r := range all {
			if r != nil {
				busy.Go(r.end)
			}
		}
		busy.Wait()
	}()
	var contenders []contender
	for i, r := range starts {
		skip := skipped("")
		switch {
		case errors.As(errs[i], &skip):
			out.Left = append(out.Left, omission{r.name, skip.Error()})
			fmt.Printf("   SKIP %s: %s\n", r.name, skip)
		case errs[i] != nil:
			return nil, fmt.Errorf("%s: %w", r.name, errs[i])
		default:
			contenders = append(contenders, contender{r.name, all[i].run})
		}
	}
	out.Series, err = compete(rounds, contenders)
	return out, err
}

func (s *setup) bakeryd(ctx context.Context, each time.Duration, _ *rivalry) (*rival, error) {
	l, err := s.newLockspace(ctx, "rivals", 16, 3)
	if err != nil {
		return nil, err
	}
	return &rival{func() ([]turn, error) { return turnsOf(ctx, nil, l.loop(0, each)...) }, l.end}, nil
}

// floor makes the bare requests on a file of the same disk.
func (s *setup) floor(ctx context.Context, each time.Duration, _ *rivalry) (*rival, error) {
	file := filepath.Join(s.work, "floor.img")
	if _, err := command(ctx, nil, "dd", "if=/dev/zero", "of="+file, "bs=1M", "count=1", "conv=fsync", "status=none"); err != nil {
		return nil, err
	}
	return &rival{func() ([]turn, error) {
		return turnsOf(ctx, nil, s.self(), "loop", "--floor", file, "--slots", "3", "--for", each.String())
	}, func() {}}, nil
}
