package probe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestJudgeLatency(t *testing.T) {
	for _, c := range []struct {
		worst, lease time.Duration
		want         Verdict
		remedy       string
	}{
		{10 * time.Millisecond, 0, OK, ""},
		{2 * time.Second, 0, OK, "bakeryctl format --lease 45s"},
		{10 * time.Millisecond, time.Second, OK, ""},
		{200 * time.Millisecond, time.Second, Warning, ""},
		{2 * time.Second, time.Second, Unfit, "bakeryctl format --lease 45s"},
		{time.Hour, 0, Unfit, "find out why the device hangs"},
	} {
		var r Report
		r.judgeLatency(latency.Summary{Count: 1000, P999: (c.worst / 4).Microseconds(), Most: c.worst.Microseconds()}, c.lease)
		f := r.Findings[0]
		require.Equal(t, c.want, f.Verdict, "%+v", f)
		if c.remedy != "" {
			require.Equal(t, c.remedy, f.Remedy)
		}
	}
}

// TestSameDisk_OtherMember_Refused has two member disks of one lockspace.
func TestSameDisk_OtherMember_Refused(t *testing.T) {
	one, two := disktest.NewMemory(1<<20, 512, 512), disktest.NewMemory(1<<20, 512, 512)
	sb := lockspacetest.Blank(t, one)
	sb.Members = layout.Members{Epoch: 1, Positions: 3, Disks: [layout.MaxPositions]layout.UUID{{1}, {2}, {3}}}
	for i, disk := range []*disktest.Memory{one, two} {
		sb.Position = i + 1
		lockspacetest.PutSuperblocks(t, disk.Open(), sb)
	}
	occupied, err := format.ReadOccupancy(t.Context(), one.Open())
	require.NoError(t, err)
	r := Report{Device: "one", Size: 1 << 20, space: occupied.Lockspace}
	require.NoError(t, r.sameDisk(one.Open()))
	require.EqualError(t, r.sameDisk(two.Open()), "memory is another disk than one: it is member 2 of the lockspace, not 1")
}
