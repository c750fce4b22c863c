package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

func TestTogether(t *testing.T) {
	s := tree(t, "several")
	device := func(name string, minor uint32, major uint32) *Report {
		return &Report{Device: name, Fit: true, Disk: disk(t, s, major, minor)}
	}
	dm, sda, sdb, sdc := device("dm-0", 0, 253), device("sda", 0, 8), device("sdb", 16, 8), device("sdc", 32, 8)
	vda1, vda2, vdb := device("vda1", 1, 254), device("vda2", 2, 254), device("vdb", 16, 254)
	nvme1, nvme2 := device("nvme0n1", 0, 259), device("nvme0n2", 1, 259)
	for _, test := range []struct {
		disks []*Report
		want  []string // the findings; none: nothing is shared
	}{
		{[]*Report{sda, vda1, vdb}, nil},
		{[]*Report{sda, sdb, vdb}, []string{
			"sda, sdb may fail together: they share iSCSI target iqn.2003-01.org.linux-iscsi:one, the array part of their WWN, naa.6001405111111111"}},
		{[]*Report{dm, vdb, sdb}, []string{
			"dm-0, sdb may fail together: they share iSCSI target iqn.2003-01.org.linux-iscsi:one, the array part of their WWN, naa.6001405111111111"}},
		{[]*Report{sda, sdb, sdc}, []string{
			"sda, sdb may fail together: they share iSCSI target iqn.2003-01.org.linux-iscsi:one, the array part of their WWN, naa.6001405111111111",
			"sdb, sdc may fail together: they share iSCSI portal 10.0.0.2"}},
		{[]*Report{vda1, vda2, vdb}, []string{"vda1, vda2 may fail together: they share disk vda"}},
		{[]*Report{nvme1, nvme2, vdb}, []string{"nvme0n1, nvme0n2 may fail together: they share NVMe subsystem nqn.2014.08.org.nvmexpress:one"}},
	} {
		all := together(test.disks)
		require.True(t, all.Fit)
		if test.want == nil {
			require.Equal(t, []Finding{{"together", OK, "sysfs shows nothing that the disks share", ""}}, all.Findings)
			continue
		}
		var found []string
		for _, f := range all.Findings {
			require.Equal(t, Warning, f.Verdict)
			found = append(found, f.Detail)
		}
		require.ElementsMatch(t, test.want, found)
	}
}

// TestTogether_OneDiskTwice_Unfit: what the second path shares with the first says nothing more.
func TestTogether_OneDiskTwice_Unfit(t *testing.T) {
	s := tree(t, "several")
	a := &Report{Device: "a", Fit: true, id: "naa.1", Disk: disk(t, s, 8, 0)}
	b := &Report{Device: "b", Fit: true, id: "naa.1", Disk: disk(t, s, 8, 0)}
	c := &Report{Device: "c", Fit: true, id: "naa.2", Disk: disk(t, s, 254, 16)}
	all := together([]*Report{a, b, c})
	require.False(t, all.Fit)
	require.Equal(t, []Finding{{"same-disk", Unfit, "a and b lead to the same disk, naa.1", "give each disk once"}}, all.Findings)
	require.Equal(t, "a, b, c", all.Device)
	b.id = "naa.3"
	require.True(t, together([]*Report{b, c}).Fit)
	c.Fit = false
	require.False(t, together([]*Report{b, c}).Fit)
	b.id, c.id = "", ""
	require.NotContains(t, together([]*Report{b, c}).Findings[0].Detail, "same disk", "nothing is known")
}

// TestTogether_LoopDevices_ShareAFileSystem: two files on it, and two that do not exist any more.
func TestTogether_LoopDevices_ShareAFileSystem(t *testing.T) {
	s := tree(t, "local")
	dir := t.TempDir()
	for i, name := range []string{"a", "b"} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		backing := filepath.Join(s.Root, "devices/virtual/block", []string{"loop0", "loop1"}[i], "loop/backing_file")
		require.NoError(t, os.WriteFile(backing, []byte(file+"\n"), 0o600))
	}
	loops := func() string {
		return together([]*Report{{Device: "loop0", Disk: disk(t, s, 7, 0)}, {Device: "loop1", Disk: disk(t, s, 7, 1)}}).Findings[0].Detail
	}
	require.True(t, strings.HasPrefix(loops(), "loop0, loop1 may fail together: they share the file system on device "), loops())
	require.NoError(t, os.RemoveAll(dir))
	require.Equal(t, "sysfs shows nothing that the disks share", loops())
}

func TestArrayOf(t *testing.T) {
	for wwid, want := range map[string]string{
		"naa.60014051111111110000000000000001":  "naa.6001405111111111",
		"naa.600140511111111100000000000000012": "", // too long
		"naa.5000c500a1b2c3d4":                  "", // of a single disk
		"eui.60014051111111110000000000000001":  "",
		"t10.ATA     disk":                      "",
		"":                                      "",
	} {
		require.Equal(t, want, arrayOf(wwid), wwid)
	}
}

// TestTogether_ListChanged_NamesReplacedAndVacant: the first disk has an old list.
func TestTogether_ListChanged_NamesReplacedAndVacant(t *testing.T) {
	on := func(name string, position int, epoch uint64, disks ...layout.UUID) *Report {
		sb := &layout.Superblock{UUID: layout.UUID{1}, Position: position, Members: layout.Members{Epoch: epoch, Positions: 3}}
		copy(sb.Members.Disks[:], disks)
		return &Report{Device: name, id: name, Fit: true, space: sb}
	}
	a, b, c, old, none := layout.UUID{10}, layout.UUID{11}, layout.UUID{12}, layout.UUID{13}, layout.UUID{}
	left := on("old", 2, 1, a, old, c)
	all := together([]*Report{left, on("a", 1, 3, a, b, c), on("b", 2, 3, a, b, c), {Device: "empty", Fit: true}})
	require.Equal(t, []string{"old was disk 2 of the lockspace until it was replaced"}, warnings(all.Findings))
	all = together([]*Report{left, on("a", 1, 2, a, none, c), on("c", 3, 2, a, none, c)})
	require.Equal(t, []string{"old was disk 2 of the lockspace until it was replaced", "position 2 of the lockspace is " + lockspace.ErrVacant.Error()},
		warnings(all.Findings))
	require.True(t, all.Fit)
	require.Len(t, together([]*Report{on("a", 1, 1, a, b, c), on("b", 2, 1, a, b, c)}).Findings, 1)
}

func warnings(found []Finding) (details []string) {
	for _, f := range found {
		if f.Verdict == Warning {
			details = append(details, f.Detail)
		}
	}
	return details
}
