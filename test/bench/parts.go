package main

import (
	"context"
	"strings"
)

// part is a separate measurement.
type part struct {
	name    string
	about   string
	measure func(context.Context, *setup) (any, error)
}

var parts = []part{
	{"machine", "the machine of the measurement", func(_ context.Context, s *setup) (any, error) { return s.machine() }},
	{"bench", "bakeryctl bench against a bakeryd", func(ctx context.Context, s *setup) (any, error) { return s.bench(ctx) }},
	{"rivals", "lock and unlock of bakeryd, etcd and sanlock, alternating", func(ctx context.Context, s *setup) (any, error) { return s.rivals(ctx) }},
	{"wrapper", "bakeryctl lock compared with flock(1)", func(ctx context.Context, s *setup) (any, error) { return s.wrapper(ctx) }},
	{"formatted", "a lockspace for 2,000 hosts compared with one for 3", func(ctx context.Context, s *setup) (any, error) { return s.formatted(ctx) }},
	{"idle", "an idle bakeryd", func(ctx context.Context, s *setup) (any, error) { return s.idle(ctx) }},
	{"scale", "more hosts and more locks, in memory", func(ctx context.Context, s *setup) (any, error) { return s.scale(ctx) }},
}

func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}
