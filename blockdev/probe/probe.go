// Package probe finds out what a disk is, and how fast, before anybody relies on it: from sysfs what lies between this
// host and the medium, by requests how long they take. It knows what that means for writes that must be durable
// and must not hang. It never knows records, and opens no device.
//
// Begin reading at [Sys.Disk]; judge.go makes findings of what it returns, latency.go measures.
package probe

import (
	"context"
	"os/exec"
	"time"
)

// Verdict is how good something is.
type Verdict string

// The verdicts, the worst last but for Unknown, which says that it could not be found out.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning"
	Unfit   Verdict = "unfit"
	Unknown Verdict = "unknown"
)

// Finding is one thing that was found out.
type Finding struct {
	ID      string  `json:"id"` // for programs; stays what it is
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"` // what was found, and why that matters
	Remedy  string  `json:"remedy"` // what to do about it; empty if nothing has to be done
}

// Sys is where to look.
type Sys struct {
	Root string // where sysfs is mounted

	// Run runs a program and returns what it printed. It returns exec.ErrNotFound, as errors.Is sees it, if there is
	// no such program.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
}

// New returns the Sys of this system.
func New() Sys { return Sys{Root: "/sys", Run: run} }

// runLimit bounds how long a program may take that only reads.
const runLimit = 10 * time.Second

func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	return exec.CommandContext(ctx, name, args...).Output()
}
