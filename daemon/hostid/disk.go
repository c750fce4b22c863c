package hostid

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// ringsGone is after how many milliseconds the kernel has closed the files of a process that ended without a
// request in flight. It takes 35 on a busy machine.
const ringsGone = 300

// KeepDisk makes an opened member disk keep a file of the disk, and returns it. It returns nil if the disk is
// simulated. A process of this machine locks the byte N of the file while a request of host N to the disk may
// be in flight, also after the end of its term, and of the process: see [blockdev.Disk.Keep]. Each term opens the
// file, so its lock conflicts with that of another term of the process, too. A lock on the disk itself is one
// on the path to it. No process removes the file.
func (o Options) KeepDisk(opened blockdev.Device, lockspace, disk layout.UUID) (*os.File, error) {
	keeper, ok := opened.(interface{ Keep(f *os.File) })
	if !ok {
		return nil, nil
	}
	file, err := o.diskFile(lockspace, disk)
	if err == nil {
		keeper.Keep(file)
	}
	return file, err
}

func (o Options) diskFile(lockspace, disk layout.UUID) (*os.File, error) {
	dir, err := o.runtimeDir()
	if err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s-%s.disk", lockspace, disk)), os.O_RDWR|os.O_CREATE, 0o600)
}

// KeptDisks returns the disks of a lockspace that were members of it for a process of this machine.
func (o Options) KeptDisks(lockspace layout.UUID) (disks []layout.UUID, err error) {
	dir, err := o.runtimeDir()
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	for _, file := range files {
		name, of := strings.CutPrefix(file.Name(), lockspace.String()+"-")
		name, is := strings.CutSuffix(name, ".disk")
		if id, err := layout.ParseUUID(name); of && is && err == nil {
			disks = append(disks, id)
		}
	}
	return disks, err
}

// LockDisk locks the byte of a host in a file of KeepDisk; nil has none. It returns [blockdev.ErrBusy] if a
// request of an earlier term may be in flight.
func LockDisk(file *os.File, host int) (err error) {
	if file == nil {
		return nil
	}
	for range ringsGone {
		if err = blockdev.LockFile(file, int64(host), 1); !errors.Is(err, blockdev.ErrBusy) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// InFlight reports whether an earlier term may have a request of a host in flight to a member disk. It
// has none to one that this term locked by LockDisk.
func (o Options) InFlight(own *os.File, lockspace, disk layout.UUID, host int) bool {
	if own != nil && blockdev.LockFile(own, int64(host), 1) == nil {
		return false
	}
	file, err := o.diskFile(lockspace, disk)
	return err != nil || errors.Join(blockdev.LockFile(file, int64(host), 1), file.Close()) != nil
}
