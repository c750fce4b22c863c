package replace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/report"
)

// TestKnows_PathOfTheNewDisk: by whatever path bakeryd has.
func TestKnows_PathOfTheNewDisk(t *testing.T) {
	dir := t.TempDir()
	disk, link, other := filepath.Join(dir, "disk"), filepath.Join(dir, "link"), filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	require.NoError(t, os.Symlink(disk, link))
	for device, want := range map[string]bool{disk: true, link: true, "/dev/a or " + link: true, other: false, "/dev/a or /dev/b": false, "": false} {
		require.Equal(t, want, knows([]report.Disk{{Position: 1, Device: other}, {Position: 2, Device: device}}, disk), device)
	}
}

func TestUse_DiskHangs_ItsPathIsLeftOut(t *testing.T) {
	for state, want := range map[string]Options{
		"hangs":    {Old: "2", Devices: []string{"/dev/a", "/dev/c", "/dev/d"}},
		"checking": {Old: "2", Devices: []string{"/dev/a", "/dev/c", "/dev/d"}},
		"down":     {Old: "/dev/b", Devices: []string{"/dev/a", "/dev/b", "/dev/c", "/dev/d"}},
	} {
		o := Options{Old: "/dev/b"}
		o.use(&report.Report{Disks: []report.Disk{
			{Position: 1, Device: "/dev/a", State: "up"},
			{Position: 2, Device: "/dev/b", State: state},
			{Position: 3, Device: "/dev/c or /dev/d", State: "up"},
		}})
		require.Equal(t, want, o)
	}
}
