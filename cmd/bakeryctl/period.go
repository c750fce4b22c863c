package main

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
)

// period is the value of the flags --since and --until.
type period struct{ since, until string }

// parse returns the two times; a zero time is no limit.
func (p period) parse(now time.Time) (from, until time.Time, err error) {
	if p.since != "" {
		if from, err = cli.ParseMoment(p.since, now); err != nil {
			return from, until, fmt.Errorf("--since: %w", err)
		}
	}
	if p.until != "" {
		if until, err = cli.ParseMoment(p.until, now); err != nil {
			return from, until, fmt.Errorf("--until: %w", err)
		}
		if !until.After(from) {
			err = fmt.Errorf("--until %s is not after --since %s", show.EventTime(until), show.EventTime(from))
		}
	}
	return from, until, err
}
