package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

// command is a program and its arguments, including argument 0.
type command struct {
	path string // empty: there is none
	args []string
}

// wrapped is how long these commands take from start to end.
type wrapped struct {
	dist            // true(1) under the lock
	TrueP50US int64 `json:"true_p50_us"` // true(1) alone

	FlockP50US  int64  `json:"flock_p50_us,omitzero"`   // under flock(1); 0: there is none
	OverFlockUS *int64 `json:"over_flock_us,omitempty"` // difference to flock(1)
}

// wrapper runs the commands alternately. The first run of each reads it from the disk and is not
// counted.
func (r *run) wrapper() error {
	locked, flock, alone := newTimes(), newTimes(), newTimes()
	first := true
	err := r.repeat(locked, func() error {
		for _, c := range []struct {
			command
			times *latency.Recorder
		}{{r.locked, locked}, {r.flock, flock}, {r.alone, alone}} {
			if c.path == "" {
				continue
			}
			took, err := c.run(r.ctx)
			if err != nil {
				return err
			}
			if !first {
				c.times.Add(took)
			}
		}
		first = false
		return nil
	})
	w := &wrapped{dist: distOf(locked), TrueP50US: micros(alone.At(50))}
	if r.flock.path != "" {
		w.FlockP50US = micros(flock.At(50))
		w.OverFlockUS = new(w.P50US - w.FlockP50US)
	} else {
		r.skip(flockName, r.why[flockName])
	}
	r.res.Wrapper = w
	return err
}

// run times one run of the command. Its standard error becomes part of the error.
func (c command) run(ctx context.Context) (time.Duration, error) {
	said, err := os.CreateTemp("", "bench")
	if err != nil {
		return 0, err
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd := exec.CommandContext(ctx, c.path)
	cmd.Args = c.args
	cmd.Stderr = said // a file: Run then waits for the command alone
	begun := time.Now()
	err = cmd.Run()
	took := time.Since(begun)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		text, _ := os.ReadFile(said.Name())
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(c.args, " "), err, bytes.TrimSpace(text))
	}
	return took, nil
}
