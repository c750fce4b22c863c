// Package probe examines a disk before it is used. From sysfs it finds the layers between this
// host and the medium, and rates them for writes that must be durable and must not hang. It sums up
// measured latencies. It never knows records, and opens no device.
//
// Begin with [Sys.Disk]. judge.go rates its results, latency.go sums up.
package probe

import (
	"context"
	"os/exec"
	"time"
)

// Verdict rates a finding.
type Verdict string

// The verdicts, the worst last. Unknown means that the fact could not be found.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning"
	Unfit   Verdict = "unfit"
	Unknown Verdict = "unknown"
)

// Finding is one rated fact.
type Finding struct {
	ID      string  `json:"id"` // for programs; never changes
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"` // the fact, and why it matters
	Remedy  string  `json:"remedy"` // an instruction; empty if none is needed
}

// Sys is the system that is examined.
type Sys struct {
	Root string // where sysfs is mounted

	// Run runs a program and returns its output. It returns exec.ErrNotFound (for errors.Is) if
	// there is no such program.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
}

// New returns the Sys of this system.
func New() Sys { return Sys{Root: "/sys", Run: run} }

// runLimit bounds the run time of a program that only reads.
const runLimit = 10 * time.Second

func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	return exec.CommandContext(ctx, name, args...).Output()
}
