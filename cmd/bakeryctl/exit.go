package main

import (
	"errors"
	"fmt"
	"os"
)

// The exit codes, as in sysexits(3) and flock(1).
const (
	exitOK          = 0
	exitConflict    = 1  // the lock was not acquired in time; -E sets another
	exitUsage       = 64 // the command line is wrong
	exitNoDevice    = 66 // the device or lockspace is not usable
	exitUnavailable = 69 // bakeryd is unreachable, or refuses
	exitLost        = 75 // the lock was lost while the command ran
	exitForbidden   = 77 // bakeryd does not let this user do that
	exitNotExec     = 126
	exitNotFound    = 127
	exitSignal      = 128 // + n: signal n killed the command
)

// failure is an error with the exit code and the remedy that go with it.
type failure struct {
	code int
	err  error  // nil: nothing to say
	hint string // empty: none
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// silent says whether an error is told by the exit code alone, or there is none.
func silent(err error) bool {
	var f *failure
	return err == nil || errors.As(err, &f) && f.err == nil
}

// report tells an error on standard error and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	f := &failure{code: exitUsage, err: err}
	errors.As(err, &f)
	if f.err != nil {
		fmt.Fprintf(a.stderr, "bakeryctl: %v\n", f.err)
		if f.hint != "" {
			fmt.Fprintf(a.stderr, "hint: %s\n", f.hint)
		}
	}
	return f.code
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
