package replace

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/report"
)

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
