package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"time"
)

// turn is one lock and unlock.
type turn struct{ lock, unlock time.Duration }

// readTurns parses the output of a client.
func readTurns(r io.Reader) (turns []turn, err error) {
	for s := bufio.NewScanner(r); s.Scan(); {
		var t turn
		if _, err := fmt.Sscan(s.Text(), &t.lock, &t.unlock); err != nil {
			return nil, fmt.Errorf("a client printed %q: %w", s.Text(), err)
		}
		turns = append(turns, t)
	}
	if len(turns) == 0 {
		return nil, fmt.Errorf("a client printed nothing")
	}
	return turns, nil
}

// quantile returns a quantile of times, which it sorts.
func quantile(times []time.Duration, q float64) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, int(q*float64(len(times))))]
}

// microseconds converts a time for the results.
func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func middle(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// series has the times of one contender. Each figure but P999US is the median of the rounds' figures,
// so that a round on a busy machine does not count.
type series struct {
	Name   string  `json:"name"`
	Count  int     `json:"count"` // of turns, in all rounds
	Rounds int     `json:"rounds"`
	P50US  float64 `json:"p50_us"` // of lock and unlock together
	P99US  float64 `json:"p99_us"`
	P999US float64 `json:"p999_us"` // of the turns of all rounds
	LockUS float64 `json:"lock_p50_us,omitempty"`
	FreeUS float64 `json:"unlock_p50_us,omitempty"`

	Ratio float64 `json:"ratio"` // to the p50 of the rounds' first contender; median of the rounds

	p50s, p99s, locks, unlocks []float64
	all                        []time.Duration
}

// add adds a round.
func (s *series) add(turns []turn) {
	var both, locks, unlocks []time.Duration
	for _, t := range turns {
		both, locks, unlocks = append(both, t.lock+t.unlock), append(locks, t.lock), append(unlocks, t.unlock)
	}
	s.Count += len(turns)
	s.Rounds++
	s.p50s = append(s.p50s, microseconds(quantile(both, .5)))
	s.p99s = append(s.p99s, microseconds(quantile(both, .99)))
	s.all = append(s.all, both...)
	s.locks = append(s.locks, microseconds(quantile(locks, .5)))
	s.unlocks = append(s.unlocks, microseconds(quantile(unlocks, .5)))
}

// sum computes the figures when all rounds were added.
func (s *series) sum(first *series) {
	s.P50US, s.P99US, s.P999US = middle(s.p50s), middle(s.p99s), microseconds(quantile(s.all, .999))
	s.LockUS, s.FreeUS = middle(s.locks), middle(s.unlocks)
	var ratios []float64
	for i := range min(len(s.p50s), len(first.p50s)) {
		ratios = append(ratios, s.p50s[i]/first.p50s[i])
	}
	s.Ratio = middle(ratios)
}

// contender is one of the compared clients.
type contender struct {
	name string
	run  func() ([]turn, error)
}

// compete runs all contenders once in every round, each time in another order, so that other load
// on the machine affects all alike.
func compete(rounds int, all []contender) ([]*series, error) {
	out := make([]*series, len(all))
	for i, c := range all {
		out[i] = &series{Name: c.name}
	}
	for round := range rounds {
		for i := range all {
			i = (i + round) % len(all)
			turns, err := all[i].run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			out[i].add(turns)
		}
	}
	for _, s := range out {
		s.sum(out[0])
	}
	return out, nil
}
