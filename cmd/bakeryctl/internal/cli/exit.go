// Package cli knows what the command lines of bakeryctl have in common: exit codes, errors with a
// hint, values of flags, and how long to wait. Of the project it imports only package term.
package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// The exit codes, as in sysexits(3) and flock(1).
const (
	ExitOK          = 0
	ExitConflict    = 1  // the lock was not acquired in time; -E sets another code
	ExitUsage       = 64 // the command line is wrong
	ExitNoDevice    = 66 // the device or lockspace is not usable
	ExitUnavailable = 69 // bakeryd is unreachable, or refuses
	ExitLost        = 75 // the lock was lost while the command ran
	ExitForbidden   = 77 // the access policy does not allow it
	ExitNotExec     = 126
	ExitNotFound    = 127
	ExitSignal      = 128 // + n: signal n killed the command

	ExitInterrupted = ExitSignal + int(syscall.SIGINT)
)

// Failure is an error with its exit code and hint.
type Failure struct {
	Code int
	Err  error  // nil: print nothing
	Hint string // empty: none
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("exit code %d", f.Code)
	}
	return f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }

// Usage returns the error for an invalid command line of a bakeryctl command.
func Usage(command, format string, args ...any) *Failure {
	return &Failure{Code: ExitUsage, Err: fmt.Errorf(format, args...), Hint: "run bakeryctl " + command + " --help"}
}

// Arguments returns the error for arguments that are missing or too many. Its hint is the usage.
func Arguments(usage, format string, args ...any) *Failure {
	return &Failure{Code: ExitUsage, Err: fmt.Errorf(format, args...), Hint: "usage: " + usage}
}

// Advice is the hint for an error, and its exit code if that is not 0.
type Advice struct {
	Err  error
	Code int
	Hint string
}

// Advise returns err with the first advice for it in a table; otherwise with code and no hint.
func Advise(err error, code int, table []Advice) *Failure {
	for _, a := range table {
		if errors.Is(err, a.Err) {
			return &Failure{cmp.Or(a.Code, code), err, a.Hint}
		}
	}
	return &Failure{Code: code, Err: err}
}

// Silent reports whether Report prints nothing for err.
func Silent(err error) bool {
	var f *Failure
	return err == nil || errors.As(err, &f) && f.Err == nil
}

// Report writes err to stderr and returns the exit code.
func Report(stderr io.Writer, err error) int {
	if err == nil {
		return ExitOK
	}
	f := &Failure{Code: ExitUsage, Err: err}
	errors.As(err, &f)
	if f.Err != nil {
		fmt.Fprintf(stderr, "bakeryctl: %v\n", f.Err)
		if f.Hint != "" {
			fmt.Fprintf(stderr, "hint: %s\n", f.Hint)
		}
	}
	return f.Code
}
