package probe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

const lease = 30 * time.Second

// tree makes a sysfs of an archive: its files, and the symbolic links in its file LINKS, from ->
// to.
func tree(t *testing.T, name string) Sys {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	require.NoError(t, err)
	root := t.TempDir()
	for _, f := range archive.Files {
		if f.Name == "LINKS" {
			continue
		}
		path := filepath.Join(root, f.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, f.Data, 0o600))
	}
	for line := range strings.Lines(string(archive.Files[0].Data)) {
		from, to, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		require.True(t, ok, line)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, from)), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(root, to), 0o755))
		target, err := filepath.Rel(filepath.Dir(filepath.Join(root, from)), filepath.Join(root, to))
		require.NoError(t, err)
		require.NoError(t, os.Symlink(target, filepath.Join(root, from)))
	}
	return Sys{Root: root, Run: func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound }}
}

func disk(t *testing.T, s Sys, major, minor uint32) *Disk {
	t.Helper()
	d, err := s.Disk(major, minor)
	require.NoError(t, err)
	return &d
}

func findings(t *testing.T, s Sys, d *Disk, lease time.Duration) map[string]Finding {
	t.Helper()
	return findingsOf(t, s, Report{Disk: d, lease: lease})
}

func findingsOf(t *testing.T, s Sys, r Report) map[string]Finding {
	t.Helper()
	found := map[string]Finding{}
	r.judgeDisk(t.Context(), s)
	for _, f := range r.Findings {
		require.NotContains(t, found, f.ID)
		require.NotEmpty(t, f.Detail)
		require.True(t, f.Verdict == OK || f.Remedy != "" || f.ID == "medium", "%+v", f)
		found[f.ID] = f
	}
	return found
}

func TestMultipath(t *testing.T) {
	s := tree(t, "multipath")
	d := disk(t, s, 253, 0)
	require.Equal(t, KindMultipath, d.Kind)
	require.Equal(t, &Mapper{Name: "locks", UUID: "mpath-36001405aaaabbbbccccddddeeeeffff00"}, d.Mapper)
	require.Len(t, d.Below, 2)
	require.Equal(t, "LIO-ORG locks", d.Below[0].Model)
	require.Equal(t, "transport-offline", d.Below[1].State)
	require.Equal(t, &Session{Transport: "iscsi", Name: "session1", Target: "iqn.2003-01.org.linux-iscsi:locks", HoldsMS: 5000,
		Setting: "node.session.timeo.replacement_timeout of iscsid.conf"}, d.Below[0].Session)

	f := findings(t, s, d, lease)
	require.Equal(t, OK, f["kind"].Verdict)
	require.Equal(t, "it rotates, or says so: a write waits for the platter", f["medium"].Detail)
	require.Contains(t, f["write-cache"].Detail, "forced unit access: a durable write is one request")
	require.Equal(t, Warning, f["paths"].Verdict)
	require.Equal(t, "2 paths, 1 of them running: sdb is transport-offline", f["paths"].Detail)
	require.Equal(t, Unknown, f["multipath-queueing"].Verdict)
	require.Contains(t, f["multipath-queueing"].Remedy, "install dmsetup")
	// The slower path counts: 120 s.
	require.Equal(t, Warning, f["session-timeout"].Verdict)
	require.Contains(t, f["session-timeout"].Detail, "iscsi session2: when its connection is lost, requests hang for 2m0s")
	require.Contains(t, f["session-timeout"].Remedy, "to 5 s")
	// A long lease has room for it.
	require.Equal(t, OK, findings(t, s, d, 10*time.Minute)["session-timeout"].Verdict)

	part := disk(t, s, 253, 1)
	require.Equal(t, KindMapper, part.Kind)
	require.Contains(t, findings(t, s, part, lease), "multipath-queueing", "what lies below counts")
}

func TestMultipathQueueing(t *testing.T) {
	s := tree(t, "multipath")
	d := disk(t, s, 253, 0)
	for _, c := range []struct {
		name, table string
		err         error
		want        Verdict
	}{
		{"queues", "0 2097152 multipath 1 queue_if_no_path 1 alua 2 1 service-time 0 1 2 8:0 1 1\n", nil, Warning},
		{"among others", "0 2097152 multipath 3 pg_init_retries 50 queue_if_no_path 0 1 1 round-robin 0\n", nil, Warning},
		{"fails", "0 2097152 multipath 0 1 alua 2 1 service-time 0 1 2 8:0 1 1\n", nil, OK},
		{"not a feature", "0 2097152 multipath 1 retain_attached_hw_handler 1 queue_if_no_path 2 1\n", nil, OK},
		{"another target", "0 2097152 linear 8:0 0\n", nil, Unknown},
		{"cut off", "0 2097152 multipath 7 queue_if_no_path\n", nil, Unknown},
		{"no program", "", exec.ErrNotFound, Unknown},
		{"no root", "", errors.New("exit status 1"), Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.Run = func(_ context.Context, name string, args ...string) ([]byte, error) {
				require.Equal(t, []string{"dmsetup", "table", "locks"}, append([]string{name}, args...))
				return []byte(c.table), c.err
			}
			f := findings(t, s, d, lease)["multipath-queueing"]
			require.Equal(t, c.want, f.Verdict, "%+v", f)
			if c.want == Warning {
				require.Contains(t, f.Remedy, "no_path_retry in multipath.conf to fail, or to a number: 3 at 5s")
			}
		})
	}
}

// TestJudge_FenceAfter_CountsInsteadOfTheLease: others fence a host that hangs for that long.
func TestJudge_FenceAfter_CountsInsteadOfTheLease(t *testing.T) {
	s := tree(t, "multipath")
	s.Run = func(context.Context, string, ...string) ([]byte, error) {
		return []byte("0 2097152 multipath 1 queue_if_no_path 0 1 1 round-robin 0\n"), nil
	}
	early := func(d *Disk, after time.Duration) map[string]Finding {
		return findingsOf(t, s, Report{Disk: d, lease: lease, space: &layout.Superblock{Lease: lease, Policy: layout.PolicyFence, FenceAfter: after}})
	}
	paths, single := disk(t, s, 253, 0), disk(t, s, 8, 0)
	require.Equal(t, "set no_path_retry in multipath.conf to fail: one check at 5s is longer than half the fence-after of 6s",
		early(paths, 6*time.Second)["multipath-queueing"].Remedy)
	require.Contains(t, early(paths, 20*time.Second)["multipath-queueing"].Remedy, "2 at 5s a check stays within half the fence-after of 20s")
	require.Contains(t, early(paths, 6*time.Second)["session-timeout"].Detail, "longer than a quarter of the fence-after of 6s")
	require.Contains(t, early(paths, 6*time.Second)["session-timeout"].Remedy, "to 1 s")
	require.Equal(t, OK, early(single, 6*time.Second)["session-timeout"].Verdict, "it takes 5 s")
	single.Session.HoldsMS = 6000
	require.Equal(t, Warning, early(single, 6*time.Second)["session-timeout"].Verdict)
	require.Equal(t, OK, early(single, 0)["session-timeout"].Verdict)
}

func TestSCSI(t *testing.T) {
	s := tree(t, "multipath")
	d := disk(t, s, 8, 0)
	require.Equal(t, KindDisk, d.Kind)
	f := findings(t, s, d, lease)
	require.Equal(t, "disk sda (LIO-ORG locks)", f["kind"].Detail)
	require.Equal(t, OK, f["session-timeout"].Verdict, "5 s, well within a lease")
	require.Equal(t, Warning, findings(t, s, d, 5*time.Second)["session-timeout"].Verdict)
	require.Contains(t, f["write-cache"].Detail, "waits for a flush")
	require.NotContains(t, f, "paths")

	part := disk(t, s, 8, 1)
	require.Equal(t, KindPartition, part.Kind)
	require.Equal(t, "sda", part.Whole)
	require.Equal(t, d.WriteCache, part.WriteCache, "that of the whole disk")
	require.Equal(t, d.Session, part.Session)
}

func TestNVMe(t *testing.T) {
	s := tree(t, "nvme")
	d := disk(t, s, 259, 0)
	require.Equal(t, KindNVMe, d.Kind)
	require.Nil(t, d.Session, "it is no fabric")
	f := findings(t, s, d, lease)
	require.Equal(t, "NVMe namespace nvme0n1 (Samsung SSD 970)", f["kind"].Detail)
	require.Equal(t, "it does not rotate", f["medium"].Detail)
	require.Equal(t, "write through: every write is durable when it returns", f["write-cache"].Detail)

	fabric := disk(t, s, 259, 1)
	require.Equal(t, "nvme2", fabric.Session.Name, "the one that holds requests longest")
	require.EqualValues(t, 600_000, fabric.Session.HoldsMS)
	f = findings(t, s, fabric, lease)
	require.Equal(t, Warning, f["session-timeout"].Verdict)
	require.Contains(t, f["session-timeout"].Remedy, "fast_io_fail_tmo")
	require.Equal(t, Unknown, f["write-cache"].Verdict)

	// Requests never fail.
	require.NoError(t, os.WriteFile(filepath.Join(s.Root, "devices/virtual/nvme-fabrics/ctl/nvme2/ctrl_loss_tmo"), []byte("off\n"), 0o600))
	fabric = disk(t, s, 259, 1)
	require.EqualValues(t, -1, fabric.Session.HoldsMS)
	require.Contains(t, findings(t, s, fabric, time.Hour)["session-timeout"].Detail, "hang without end")
}

func TestLocalDisks(t *testing.T) {
	s := tree(t, "local")
	for _, c := range []struct {
		major, minor uint32
		kind         Kind
		want         Verdict
		says         string
	}{
		{254, 0, KindVirtio, OK, "virtio disk vda"},
		{254, 1, KindPartition, OK, "a partition of vda"},
		{7, 0, KindLoop, Warning, "a loop device on /srv/locks.img"},
		{7, 1, KindLoop, Warning, "this host's page cache"},
		{253, 5, KindMapper, Warning, "device mapper LVM vg-locks"},
		{9, 0, KindRAID, Warning, "md raid md0"},
		{1, 0, KindMemory, Unfit, "memory"},
	} {
		d := disk(t, s, c.major, c.minor)
		require.Equal(t, c.kind, d.Kind)
		f := findings(t, s, d, lease)["kind"]
		require.Equal(t, c.want, f.Verdict)
		require.Contains(t, f.Detail, c.says)
	}
	require.NotContains(t, findings(t, s, disk(t, s, 7, 0), lease)["kind"].Detail, "page cache")
	_, err := s.Disk(99, 99)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestVirtioDisk_HasANumberAsVendor_IsNamedWithoutIt: sysfs has no model of it.
func TestVirtioDisk_HasANumberAsVendor_IsNamedWithoutIt(t *testing.T) {
	s := tree(t, "local")
	require.Equal(t, "virtio disk vda", findings(t, s, disk(t, s, 254, 0), lease)["kind"].Detail)
}

func TestWatchdogs(t *testing.T) {
	s := tree(t, "local")
	dogs := s.Watchdogs()
	require.Equal(t, []Watchdog{
		{Name: "watchdog0", Identity: "iTCO_wdt", State: "active", TimeoutMS: 30_000},
		{Name: "watchdog1", Identity: "Software Watchdog", State: "inactive", TimeoutMS: 60_000, MaxMS: 65_535_000, NoWayOut: true},
	}, dogs)
	judge := func(dogs []Watchdog) Finding {
		r := Report{Watchdogs: dogs}
		r.judgeWatchdogs(10 * time.Second)
		return r.Findings[0]
	}
	f := judge(dogs)
	require.Equal(t, OK, f.Verdict)
	require.Contains(t, f.Detail, "/dev/watchdog0 (iTCO_wdt) is in use by another program; /dev/watchdog1 (Software Watchdog) can be used, but never disarmed")
	require.Equal(t, Warning, judge(dogs[:1]).Verdict)
	dogs[1].MaxMS = 9000
	f = judge(dogs)
	require.Equal(t, Warning, f.Verdict)
	require.Contains(t, f.Detail, "lasts for 9 s at most, the lease asks for 10s")
	require.Equal(t, OK, judge(nil).Verdict)
	require.Empty(t, tree(t, "nvme").Watchdogs())
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	var r Report
	require.NoError(t, r.addFile(thisSystem(), path))
	require.NotEmpty(t, r.File.Filesystem)
	require.Equal(t, "kind", r.Findings[0].ID)
	require.NotEqual(t, OK, r.Findings[0].Verdict)
	require.ErrorIs(t, r.addFile(thisSystem(), path+"-none"), os.ErrNotExist)

	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		t.Skipf("SKIP: needs a tmpfs on %s", memory)
	}
	require.NoError(t, r.addFile(thisSystem(), memory))
	require.Equal(t, Unfit, r.Findings[1].Verdict)
}
