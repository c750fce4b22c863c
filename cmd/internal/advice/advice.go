// Package advice has the hints for errors of devices that bakeryctl and bakeryd share. It knows the errors of the
// packages that open a lockspace, and no command line.
package advice

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Hint is an instruction for an error.
type Hint struct {
	Err  error
	Text string // empty: the error has it
}

// Device are the hints for errors of devices. The first that matches counts.
var Device = []Hint{
	{syscall.EPERM, notPermitted()},
	{blockdev.ErrDirectory, "give a path in a directory that this user may write"},
	{fs.ErrPermission, noPermission()},
	{lockspace.ErrNoAnswer, "check the disks that do not answer: dmesg, multipath -ll, cables"},
	{lockspace.ErrMajority, "correct the paths that are wrong, and check the disks that fail: dmesg, multipath -ll"},
	{lockspace.ErrDisks, ""}, // it names the remedy, and wraps the errors of single disks
	{lockspace.ErrInterrupted, "run bakeryctl format --force to complete it"},
	{layout.ErrVersion, "use the bakeryctl of the version that formatted it"},
	{layout.ErrMagic, "check the device name: lsblk -f shows what the device holds, and bakeryctl format would destroy that"},
	{lockspace.ErrNoLockspace, "check the device name; to create a lockspace, run bakeryctl format"},
	{lockspace.ErrStride, "use --stride auto when formatting; a lockspace cannot move to a device with larger blocks"},
	{lockspace.ErrDeviceSize, "check the path, or restore the size of the device: it was larger when it was formatted"},
	{blockdev.ErrTooSmall, "check the path: a lockspace needs a larger device or file"},
	{blockdev.ErrReadOnly, "check the export or mapping of the device: blockdev --getro shows whether it is read-only"},
	{blockdev.ErrNoDirectIO, "use a block device, or a file on a filesystem with direct IO, such as ext4 or XFS; tmpfs has none"},
	{blockdev.ErrBusy, "run lsblk or findmnt to find its user; --force does not help"},
}

// NotDevice is the hint for a path that is no device.
var NotDevice = Hint{blockdev.ErrNotDevice, "check the device name: want a block device, or a file that was formatted"}

func noPermission() string {
	if os.Geteuid() == 0 {
		return "check that the device is not read-only (blockdev --getro), and that no container or security module refuses root"
	}
	return "run it as root or as a member of the device's group"
}

// notPermitted is for what is refused although the permissions of the file allow it.
func notPermitted() string {
	if os.Geteuid() == 0 {
		return "check that the file is not immutable (lsattr), and that the container or unit allows the device and the command"
	}
	return "run it as root"
}

// Find returns the hint for err in a table, "" if none.
func Find(err error, table []Hint) string {
	for _, h := range table {
		if errors.Is(err, h.Err) {
			return h.Text
		}
	}
	return ""
}
