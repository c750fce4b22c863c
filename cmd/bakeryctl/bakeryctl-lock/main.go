// Command bakeryctl-lock is the bakeryctl that cmd/build and the packages install: it runs bakeryctl
// lock itself, and executes bakeryctl-full, the complete program next to it, for everything else. It
// starts in half the time of that, because it links only what a lock from bakeryd needs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/lock"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
)

func main() {
	if os.Args[0] == supervise.AsStub {
		os.Exit(supervise.RunStub(os.Args[1:]))
	}
	if o, ok := lock.Direct(os.Args[1:]); ok {
		os.Exit(cli.Report(os.Stderr, o.Run(cli.DefaultPatience().With(context.Background()), os.Stdin, os.Stdout, os.Stderr)))
	}
	os.Exit(cli.Report(os.Stderr, execFull()))
}

// execFull executes the complete program, with the signal state that this process was started in. It
// returns only an error.
func execFull() error {
	dir, err := directory()
	if err != nil {
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("find the program %s: %w", lock.Complete, err), Hint: "is /proc mounted?"}
	}
	path := filepath.Join(dir, lock.Complete)
	inherited := signals.Inherited()
	inherited.Restore()
	err = signals.With(inherited.Blocked, func() error { return syscall.Exec(path, os.Args, os.Environ()) })
	return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("execute %s, which has all commands but lock: %w", path, err),
		Hint: "install bakeryctl and " + lock.Complete + " together, in one directory: a package or cmd/build does"}
}

// directory returns the directory of this program. If /proc is not mounted, it looks where a shell
// does: the other commands do not need /proc.
func directory() (string, error) {
	self, err := os.Executable()
	if err == nil {
		return filepath.Dir(self), nil
	}
	found, lookErr := exec.LookPath(os.Args[0])
	if lookErr == nil {
		found, lookErr = filepath.EvalSymlinks(found)
	}
	if lookErr != nil {
		return "", err
	}
	return filepath.Dir(found), nil
}
