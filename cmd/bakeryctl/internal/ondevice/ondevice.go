// Package ondevice serves commands that use a device without bakeryd. It reads a lockspace, creates
// one, leaves one that this process has joined, and gives device errors an exit code and a hint. It
// imports package daemon and package cli of bakeryctl.
package ondevice

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/internal/advice"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// Status returns the report of the lockspace on the disks at paths, without joining it.
func Status(ctx context.Context, paths []string) (*report.Report, error) {
	return Read(ctx, paths, func(dev blockdev.Device) (*report.Report, error) {
		snapshot, err := lockspace.Inspect(dev)
		if err != nil {
			return nil, err
		}
		return report.FromSnapshot(snapshot, lockspace.MemberDisks(dev)...), nil
	})
}

// Advice are the hints for device errors of any command.
var Advice = func() (all []cli.Advice) {
	for _, h := range advice.Device {
		all = append(all, cli.Advice{Err: h.Err, Hint: h.Text})
	}
	return append(all,
		cli.Advice{Err: blockdev.ErrNotDevice, Hint: "give the path of a block device, as lsblk --paths lists them, or of a regular file"},
		cli.Advice{Err: fs.ErrNotExist, Hint: "check the path; lsblk --paths lists the block devices, and bakeryctl status shows that of bakeryd"},
		cli.Advice{Err: ErrHangs, Hint: "check the device: dmesg, multipath -ll, iostat -x 1"},
		cli.Advice{Err: lease.ErrFull, Hint: "stop bakeryd on a host that is not needed, or free the id of a dead one with bakeryctl evict ID --forget: the command joins as a host"})
}()

// NewFile is the advice for a lockspace in a new file.
var NewFile = cli.Advice{Err: fs.ErrNotExist, Hint: "check the path; a new file is created only outside /dev, in a directory that exists"}

// Failure returns err with the exit code of an unusable device and a hint.
func Failure(err error) *cli.Failure { return cli.Advise(err, cli.ExitNoDevice, Advice) }

// LeaveWithin is the timeout for leaving a lockspace. A host that takes longer is declared dead by
// the other hosts.
const LeaveWithin = 10 * time.Second

// Logger returns a logger that writes the warnings of a host in this process to w.
func Logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Leave leaves the lockspace that d has joined, within LeaveWithin.
func Leave(d *daemon.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), LeaveWithin)
	defer cancel()
	return d.Close(ctx)
}

// Create creates a lockspace in a new file at path. It does nothing if the path exists.
func Create(ctx context.Context, path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := format.Format(ctx, []string{path}, format.Options{
		Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks, Lease: lockspace.DefaultLease, Policy: layout.PolicyLease,
	})
	if errors.Is(err, fs.ErrExist) || errors.Is(err, format.ErrOccupied) {
		return nil // another process created it; joining checks whether it is a lockspace
	}
	return err
}
