package report

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// diskReport returns a report of n member disks, of which the last ones are down.
func diskReport(n, down int) *Report {
	r := &Report{}
	for i := range n {
		d := Disk{Position: i + 1, Device: "/dev/" + string(rune('a'+i)), State: "up"}
		if i >= n-down {
			d.State, d.Error = "down", "input/output error"
		}
		r.Disks = append(r.Disks, d)
	}
	return r
}

func TestReport_MemberDisks_NumberUpDecidesSeverity(t *testing.T) {
	const (
		spare = " -> " + checkDevice
		last  = " -> a host that loses one more disk loses its lease; " + checkDevice
	)
	down := func(severity, disk, remedy string) string {
		return severity + " disk: member disk " + disk + " is down: input/output error" + remedy
	}
	over := func(words string) string {
		return " -> " + words + ": this host cannot renew its lease; " + checkDevice
	}
	for _, c := range []struct {
		disks, down int
		want        []string
	}{
		{0, 0, nil},
		{3, 0, nil},
		{3, 1, []string{down("warning", "3 (/dev/c)", last)}},
		{3, 2, []string{down("error", "2 (/dev/b)", over("1 of 3 disks up, 2 needed")), down("error", "3 (/dev/c)", over("1 of 3 disks up, 2 needed"))}},
		{5, 0, nil},
		{5, 1, []string{down("warning", "5 (/dev/e)", spare)}},
		{5, 2, []string{down("warning", "4 (/dev/d)", last), down("warning", "5 (/dev/e)", last)}},
		{5, 3, []string{down("error", "3 (/dev/c)", over("2 of 5 disks up, 3 needed")), down("error", "4 (/dev/d)", over("2 of 5 disks up, 3 needed")),
			down("error", "5 (/dev/e)", over("2 of 5 disks up, 3 needed"))}},
	} {
		r := diskReport(c.disks, c.down)
		r.Judge()
		var got []string
		for _, p := range r.Problems {
			got = append(got, p.String())
		}
		require.Equal(t, c.want, got, "%d of %d down", c.down, c.disks)
	}
}

func TestReport_AllDisksDown_EachIsListedAlone(t *testing.T) {
	r := diskReport(5, 5)
	r.Judge()
	require.Len(t, r.Problems, 5)
	require.Equal(t, "disk 5", r.Problems[4].Subject)
}

func TestReport_DiskIsChecked_CountsAsNotUp(t *testing.T) {
	r := diskReport(3, 1)
	r.Disks[2].State = "checking"
	r.Judge()
	require.Equal(t, "member disk 3 (/dev/c) is being checked", r.Problems[0].Text)
	require.Equal(t, SeverityWarning, r.Problems[0].Severity)
}

func TestDisksOf(t *testing.T) {
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	disks := DisksOf([]lockspace.MemberDisk{
		{Position: 1, UUID: layout.UUID{1}, Status: mirror.Status{Name: "/dev/a", State: mirror.Up, Since: since, Err: errors.New("timeout"), Failures: 3, Behind: 4,
			Stats: blockdev.Stats{InFlight: 5, Oldest: 6 * time.Millisecond, Write: blockdev.Latency{Count: 7, Errors: 8, P50: time.Millisecond, P99: time.Second, Max: time.Minute}}}},
		{Position: 4, Status: mirror.Status{Name: "member 4", State: mirror.Down, Err: lockspace.ErrNoPath}},
	})
	require.Equal(t, Disk{Position: 1, Device: "/dev/a", UUID: layout.UUID{1}, State: "up", Since: since.UTC(), Error: "timeout", Failures: 3, Behind: 4,
		IO: IO{InFlight: 5, OldestMS: 6, Write: Latency{Count: 7, Errors: 8, P50US: 1000, P99US: 1_000_000, MaxUS: 60_000_000}}}, disks[0])
	require.True(t, disks[0].Up())
	r := &Report{Disks: append(diskReport(2, 0).Disks, disks[1])}
	r.Judge()
	require.Equal(t, "warning disk: member disk 4 is down: no path was given for it"+
		" -> a host that loses one more disk loses its lease; add its path to --device or BAKERYD_DEVICE", r.Problems[0].String())
	require.Nil(t, DisksOf(nil))

	lost := "check that the path is right; if so, the disk lost its contents: run bakeryctl disk replace 3 NEW, where NEW may be this disk, with --force"
	for _, c := range []struct {
		err    error
		remedy string
	}{
		{lockspace.ErrReplaced, "add the path of the new disk to --device or BAKERYD_DEVICE, and restart bakeryd"},
		{layout.ErrBlank, lost},
		{layout.ErrMagic, lost},
		{layout.ErrChecksum, lost},
		{layout.ErrIdentity, lost},
		{lockspace.ErrLostWrites, lost},
		{unix.EIO, ""},
	} {
		down := DisksOf([]lockspace.MemberDisk{{Position: 3, Status: mirror.Status{Name: "/dev/c", State: mirror.Down, Err: c.err}}})
		require.Equal(t, c.remedy, down[0].Remedy)
	}
	maybe := DisksOf([]lockspace.MemberDisk{{Position: 3, Status: mirror.Status{Name: "/dev/c or /dev/d", State: mirror.Down, Err: lockspace.ErrReplaced}}})
	require.Equal(t, "check these devices; if none of them is the disk, add its path to --device or BAKERYD_DEVICE", maybe[0].Remedy)

	vacant := DisksOf([]lockspace.MemberDisk{{Position: 3, Status: mirror.Status{Name: "member 3", State: mirror.Down, Err: lockspace.ErrVacant, Behind: 2}}})
	require.Equal(t, []string{"vacant", ""}, []string{vacant[0].State, vacant[0].Device})
	require.Zero(t, vacant[0].Behind, "records that a disk lacks which is not there")
	left := &Report{Lockspace: Lockspace{Device: "/dev/a, /dev/b, /dev/old"}}
	left.AddDisks([]lockspace.MemberDisk{{Position: 1, Status: mirror.Status{Name: "/dev/a", State: mirror.Up}},
		{Position: 2, Status: mirror.Status{Name: "/dev/b", State: mirror.Down, Err: errors.New("lost")}},
		{Position: 3, Status: mirror.Status{Name: "member 3", State: mirror.Down, Err: lockspace.ErrVacant}}})
	require.Equal(t, "/dev/a, /dev/b", left.Lockspace.Device)
	left.AddDisks(nil)
	require.Equal(t, "/dev/a, /dev/b", left.Lockspace.Device)
	r = &Report{Disks: append(diskReport(2, 0).Disks, vacant...)}
	r.Judge()
	require.Equal(t, "warning disk: member disk 3 is vacant: its disk is being replaced, or a replacement was interrupted"+
		" -> a host that loses one more disk loses its lease; if no replacement is running, run bakeryctl disk replace 3 NEW", r.Problems[0].String())

	hung := DisksOf([]lockspace.MemberDisk{
		{Position: 2, Status: mirror.Status{Name: "/dev/b", State: mirror.Up, Since: since, Stats: blockdev.Stats{Oldest: 5*time.Second + 1}}},
		{Position: 3, Status: mirror.Status{Name: "/dev/c", State: mirror.Up, Since: since, Stats: blockdev.Stats{Oldest: 5 * time.Second}}},
		{Position: 4, Status: mirror.Status{Name: "/dev/d", State: mirror.Down, Since: since, Err: errors.New("lost"), Stats: blockdev.Stats{Oldest: time.Minute}}},
	})
	require.WithinDuration(t, time.Now().Add(-5*time.Second), hung[0].Since, time.Minute)
	require.Equal(t, []string{"hangs", "up", "down"}, []string{hung[0].State, hung[1].State, hung[2].State})
	require.Equal(t, since.UTC(), hung[2].Since)
	r = &Report{Disks: append(diskReport(2, 0).Disks, hung[0])}
	r.Judge()
	require.Equal(t, "warning disk: member disk 2 (/dev/b) hangs: a request has not returned for 5 s"+
		" -> a host that loses one more disk loses its lease; "+checkDevice, r.Problems[0].String())

	for _, err := range []error{nil, errors.New("input/output error")} {
		checked := DisksOf([]lockspace.MemberDisk{
			{Position: 1, Status: mirror.Status{Name: "/dev/a", Since: time.Now().Add(-time.Second), Err: err}},
			{Position: 2, Status: mirror.Status{Name: "/dev/b", Since: time.Now().Add(-time.Hour), Err: err}},
		})
		require.Equal(t, []string{"checking", "hangs"}, []string{checked[0].State, checked[1].State})
		require.Equal(t, "its check has not returned for 60 min"+map[bool]string{true: ", after: input/output error"}[err != nil], checked[1].Error)
	}
}
