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

// Commands are run to measure the cost of a command under a lock.
type Commands struct {
	Locked  Command // runs true(1) under the lock
	Flock   Command // runs it under flock(1); zero if there is none
	NoFlock string  // why Flock is zero
	True    Command // true(1) alone
}

// Command is a program and its arguments, including argument 0.
type Command struct {
	Path string
	Args []string
}

// Wrapped is how long these commands take from start to end.
type Wrapped struct {
	P50US     int64 `json:"p50_us"`
	TrueP50US int64 `json:"true_p50_us"`

	FlockP50US  int64  `json:"flock_p50_us,omitzero"` // 0: there is no flock(1)
	OverFlockUS *int64 `json:"over_flock_us,omitempty"`
	Count       int64  `json:"count"`
}

// wrapper runs the commands alternately. The first run of each reads it from the disk and is not
// counted.
func (r *run) wrapper() error {
	locked, flock, alone := newTimes(), newTimes(), newTimes()
	first := true
	err := r.repeat(locked, func() error {
		for _, c := range []struct {
			command Command
			times   *latency.Recorder
		}{{r.Commands.Locked, locked}, {r.Commands.Flock, flock}, {r.Commands.True, alone}} {
			if c.command.Path == "" {
				continue
			}
			took, err := c.command.run(r.ctx)
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
	if err != nil {
		return err
	}
	w := &Wrapped{P50US: micros(locked.At(50)), TrueP50US: micros(alone.At(50)), Count: locked.Count()}
	if flock.Count() > 0 {
		w.FlockP50US = micros(flock.At(50))
		w.OverFlockUS = new(w.P50US - w.FlockP50US)
	} else {
		r.skip(Wrapper+".flock", r.Commands.NoFlock)
	}
	r.res.Wrapper = w
	return nil
}

// run times one run of the command. Its standard error becomes part of the error.
func (c Command) run(ctx context.Context) (time.Duration, error) {
	said, err := os.CreateTemp("", "bench")
	if err != nil {
		return 0, err
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd := exec.CommandContext(ctx, c.Path)
	cmd.Args = c.Args
	cmd.Stderr = said // a file: Run then waits for the command alone
	begun := time.Now()
	err = cmd.Run()
	took := time.Since(begun)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		text, _ := os.ReadFile(said.Name())
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, bytes.TrimSpace(text))
	}
	return took, nil
}
