package main

import (
	"context"
	"time"
)

// formatted compares two lockspaces with three hosts each, one of them formatted for the greatest
// number of hosts.
func (s *setup) formatted(ctx context.Context) ([]*series, error) {
	rounds, each := 9, 2*time.Second
	if s.quick {
		rounds, each = 2, 100*time.Millisecond
	}
	small, err := s.newLockspace(ctx, "for-3", 3, 3)
	if err != nil {
		return nil, err
	}
	defer small.end()
	large, err := s.newLockspace(ctx, "for-2000", 2000, 3)
	if err != nil {
		return nil, err
	}
	defer large.end()
	run := func(l *lockspace) func() ([]turn, error) {
		return func() ([]turn, error) { return turnsOf(ctx, nil, l.loop(0, each)...) }
	}
	return compete(rounds, []contender{{"formatted for 3", run(small)}, {"formatted for 2,000", run(large)}})
}
