package probe

import (
	"context"
	"os/exec"
	"time"
)

// Sys is the system that is examined. It opens no device.
type Sys struct {
	Root string // where sysfs is mounted

	// Run runs a program and returns its output. It returns exec.ErrNotFound (for errors.Is) if
	// there is no such program.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
}

// thisSystem returns the Sys of this system.
func thisSystem() Sys { return Sys{Root: "/sys", Run: run} }

// runLimit bounds the run time of a program that only reads.
const runLimit = 10 * time.Second

func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	return exec.CommandContext(ctx, name, args...).Output()
}
