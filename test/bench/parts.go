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
	{"machine", "what this is measured on", func(_ context.Context, s *setup) (any, error) { return s.machine() }},
	{"bench", "bakeryctl bench against a bakeryd", func(ctx context.Context, s *setup) (any, error) { return s.bench(ctx) }},
	{"rivals", "lock and unlock by bakeryd, etcd and sanlock in turn", func(ctx context.Context, s *setup) (any, error) { return s.rivals(ctx) }},
	{"wrapper", "bakeryctl lock beside flock(1)", func(ctx context.Context, s *setup) (any, error) { return s.wrapper(ctx) }},
	{"formatted", "a lockspace for 2,000 hosts beside one for 3", func(ctx context.Context, s *setup) (any, error) { return s.formatted(ctx) }},
	{"idle", "a bakeryd of which nothing is wanted", func(ctx context.Context, s *setup) (any, error) { return s.idle(ctx) }},
	{"scale", "more hosts and more locks, in memory", func(ctx context.Context, s *setup) (any, error) { return s.scale(ctx) }},
}

func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}
