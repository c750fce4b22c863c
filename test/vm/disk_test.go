//go:build vm

package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// image creates an empty disk.
func image(t *testing.T, name string, megabytes int64) (path string) {
	t.Helper()
	path = filepath.Join(directory(t), name)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, megabytes<<20))
	return path
}

// plain makes an image /dev/vda of any number of machines.
func plain(image string) []string {
	return []string{"-drive", "if=none,id=vda,format=raw,cache=none,file.locking=off,file=" + image, "-device", "virtio-blk-pci,drive=vda"}
}

// scsi makes logical units the disks of a machine. Its SCSI commands reach the target unchanged, as
// from a separate initiator.
func scsi(initiator string, units ...unit) []string {
	args := []string{"-device", "virtio-scsi-pci"}
	for i, u := range units {
		args = append(args, "-device", fmt.Sprintf("scsi-block,drive=unit%d,scsi-id=%d", i, i),
			"-drive", fmt.Sprintf("if=none,id=unit%d,driver=raw,cache=none,file.driver=iscsi,file.transport=tcp,file.portal=%s,file.target=%s,file.lun=%d,file.initiator-name=%s:%s",
				i, u.portal, targetName, u.lun, initiators, initiator))
	}
	return args
}

// unit is a logical unit, and the path to it.
type unit struct {
	portal string
	lun    int
}

// disk loads the driver of a disk and waits for the disk.
func (m *machine) disk(driver, dev string) {
	m.t.Helper()
	m.sh("modprobe " + driver + "; until test -b " + dev + "; do sleep 0.1; done")
}

// disks loads the driver of SCSI disks, and names the disks by their sizes in megabytes: the kernel
// probes them in parallel, and numbers them in any order.
func (m *machine) disks(names map[string]int64) {
	m.t.Helper()
	m.sh("modprobe -a sd_mod virtio_scsi")
	m.nameDisks(names)
}

// nameDisks names SCSI disks by their sizes in megabytes.
func (m *machine) nameDisks(names map[string]int64) {
	m.t.Helper()
	for name, megabytes := range names {
		m.sh(fmt.Sprintf(`until test -b /dev/%s; do
			for disk in /sys/block/sd*; do
				test "$(cat "$disk/size")" != %d || ln -sf "${disk##*/}" /dev/%s
			done
			sleep 0.1
		done`, name, megabytes<<11, name))
	}
}
