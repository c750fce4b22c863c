package show

import (
	"bytes"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/test/showtest"
)

func diskTable(t *testing.T, r *report.Report) string {
	t.Helper()
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	DiskTable(w, r, showtest.Noon, render.Paint(false))
	require.NoError(t, w.Flush())
	return out.String()
}

func TestDiskTable_SeveralDisks_ProblemsComeFirst(t *testing.T) {
	r := showtest.Report()
	r.Disks = showtest.Disks()
	r.Judge()
	require.Equal(t, `  warning: member disk 3 (/dev/mapper/vote-c) is down: open /dev/mapper/vote-c: no such file or directory
    a host that loses one more disk loses its lease; check the device: dmesg, multipath -ll, iostat -x 1

DISK  STATE  FOR    READ              WRITE             FAILED  BEHIND  DEVICE
1     up     2h00m  210 us, 1.20 ms   1.90 ms, 14.0 ms  0       0       /dev/mapper/vote-a
2     up     2h00m  240 us, 1.50 ms   2.10 ms, 18.0 ms  3       1       /dev/mapper/vote-b
3     down   1m20s  1.10 ms, 9.00 ms  5.30 ms, 104 ms   12      7       /dev/mapper/vote-c
`, diskTable(t, r))

	r.Disks[2] = report.Disk{Position: 3, State: "checking", Since: showtest.Noon.Add(-time.Second)}
	require.Contains(t, diskTable(t, r), "\n3     checking  1s     -                -                 0       0       -\n")
}

func TestDiskTable_OneDisk_IsNamed(t *testing.T) {
	require.Equal(t, "the lockspace is on one disk: /dev/mapper/locks\n", diskTable(t, showtest.Report()))
}
