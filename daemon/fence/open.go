package fence

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// openDevice is the opener of real devices.
func openDevice(path string) (*handle, error) {
	var st unix.Stat_t
	// Checked before opening: opening a FIFO blocks, and opening a watchdog arms it.
	if err := unix.Stat(path, &st); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil, unsupported(errors.New("it is no block device"))
	}
	sys := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	if _, err := os.Stat(sys + "partition"); err == nil {
		return nil, unsupported(errors.New("it is a partition, and a reservation covers the whole disk"))
	}
	// Opened for writing, although nothing is written: the kernel allows reservations only then.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	k := kernel{fd: fd, namespace: namespaceOf(fd)}
	sg := scsi{dev: sgDevice{fd}}
	h := &handle{
		transports: []transport{k},
		readers:    []func() (State, error){k.state, sg.state},
		close:      func() { _ = unix.Close(fd) }, // nothing was written
		name:       blockdev.Info{Path: path, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}.Disk(),
	}
	// SG_IO sends a command on one path of a multipath device, but a key must be registered on
	// all.
	if k.namespace == 0 && !multipath(sys) {
		h.transports = append(h.transports, sg)
	}
	return h, nil
}

// multipath reports whether the device whose sysfs directory is dir has more than one device
// below it, or one that has.
func multipath(dir string) bool {
	below, err := os.ReadDir(dir + "slaves")
	switch {
	case err != nil || len(below) == 0:
		return false
	case len(below) > 1:
		return true
	}
	return multipath(dir + "slaves/" + below[0].Name() + "/")
}
