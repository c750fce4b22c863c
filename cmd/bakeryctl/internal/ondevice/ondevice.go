// Package ondevice is for commands that use a device without bakeryd: it reads what is there, makes
// a lockspace, leaves one that this process has joined, and gives errors of a device an exit code
// and a hint. It imports package daemon, which does that work, and cli of bakeryctl.
package ondevice

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// Open opens a device to be read.
func Open(path string) (blockdev.Device, error) {
	dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
	if err != nil {
		return nil, Failure(err)
	}
	return dev, nil
}

// Status returns the report of the lockspace at path, without joining it.
func Status(path string) (*report.Report, error) {
	dev, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	snapshot, err := lockspace.Inspect(dev)
	if err != nil {
		return nil, Failure(err)
	}
	return report.FromSnapshot(snapshot), nil
}

// Failure returns the error of a device that is not usable.
func Failure(err error) *cli.Failure {
	return &cli.Failure{Code: cli.ExitNoDevice, Err: err, Hint: Hint(err)}
}

// Hint returns the remedy for an error that any command may meet on a device.
func Hint(err error) string {
	switch {
	case errors.Is(err, lockspace.ErrInterrupted):
		return "bakeryctl format --force completes it"
	case errors.Is(err, layout.ErrVersion):
		return "it was formatted by another version of bakeryd: use the bakeryctl of that version"
	case errors.Is(err, lockspace.ErrNoLockspace):
		return "bakeryctl format makes one; is it the right device?"
	case errors.Is(err, lockspace.ErrStride):
		return "--stride auto fits every device; a lockspace cannot move to a device with larger blocks"
	case errors.Is(err, lockspace.ErrDeviceSize), errors.Is(err, blockdev.ErrTooSmall):
		return "use a larger device, or format for fewer --hosts or --locks"
	case errors.Is(err, blockdev.ErrBusy):
		return "see who uses it: lsblk, findmnt; --force does not help"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "it takes root, or membership in the group of the device"
	}
	return ""
}

// LeaveWithin bounds how long leaving the lockspace may take. Whoever takes longer is left for dead
// by the other hosts.
const LeaveWithin = 10 * time.Second

// Logger returns where a host in this process writes its warnings.
func Logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Leave leaves the lockspace that d has joined.
func Leave(d *daemon.Daemon) error {
	ctx, cancel := context.WithTimeout(context.Background(), LeaveWithin)
	defer cancel()
	return d.Close(ctx)
}

// Create makes a lockspace in a file of that path if there is none, and never touches one that
// exists.
func Create(ctx context.Context, path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := format.Format(ctx, path, format.Options{
		Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks, Lease: lockspace.DefaultLease, Policy: layout.PolicyLease,
	})
	if errors.Is(err, fs.ErrExist) || errors.Is(err, format.ErrOccupied) {
		return nil // another one was faster; joining tells whether it is a lockspace
	}
	return err
}
