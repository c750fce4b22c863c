package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/process"
)

func TestParents(t *testing.T) {
	const (
		hybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
`
		unified = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
		part    = `50 22 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup rw
51 22 0:26 / /mnt/all\040of\134it rw - cgroup2 cgroup rw
`
	)
	for _, test := range []struct {
		name, mounts, groups string
		want                 []string
	}{
		{"hybrid", hybrid, "2:cpu:/x\n1:name=systemd:/y\n0::/\n", []string{"/sys/fs/cgroup/unified"}},
		{"below", hybrid, "0::/a/b c\n", []string{"/sys/fs/cgroup/unified/a/b c"}},
		{"unified", unified, "0::/system.slice/cron.service\n", []string{"/sys/fs/cgroup/system.slice/cron.service"}},
		{"a part of the hierarchy", part, "0::/box/a\n", []string{"/sys/fs/cgroup/a", `/mnt/all of\it/box/a`}},
		{"outside of that part", part, "0::/boxes\n", []string{`/mnt/all of\it/boxes`}},
		{"outside of the namespace", unified, "0::/../other\n", nil},
		{"version 1 only", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "1:cpu:/x\n", nil},
		{"not mounted", "", "0::/\n", nil},
		{"nonsense", "a b c - cgroup2 \n - \n", "0::\n0::/\n", nil},
	} {
		if got, _ := parents(test.mounts, test.groups); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestName(t *testing.T) {
	for _, session := range []string{"", "01234567"} {
		w := Wrapper{process.ID{PID: 17, Started: 4711}, 4026531836, session}
		named, ok := Named(w.Name())
		require.True(t, ok)
		require.Equal(t, w, named)
	}
	for _, name := range []string{"", "bakeryctl-", "bakeryctl-1", "bakeryctl-1-2", "bakeryctl-01-2-3", "bakeryctl-1-2-3 ", "bakeryctl-1-2-3-", "cron.service"} {
		_, ok := Named(name)
		require.False(t, ok, name)
	}
}

// TestName_TwoSessionsOfOneProcess_Differ: the end of one session does not kill the command of
// the other.
func TestName_TwoSessionsOfOneProcess_Differ(t *testing.T) {
	one, err := Of(os.Getpid(), "0123456789abcdef")
	require.NoError(t, err)
	other, err := Of(os.Getpid(), "fedcba9876543210")
	require.NoError(t, err)
	require.NotEqual(t, one[0].Dir, other[0].Dir)
}

// soon bounds the wait of a test for a condition.
const soon = 2 * time.Minute

func self(t *testing.T) Wrapper {
	groups, err := Of(os.Getpid(), "0123456789abcdef")
	require.NoError(t, err)
	w, ok := Named(filepath.Base(groups[0].Dir))
	require.True(t, ok)
	return w
}

// newGroup returns a group of this process, which is removed with the test.
func newGroup(t *testing.T) *Group {
	t.Helper()
	g, err := Make(Of(os.Getpid(), "0123456789abcdef"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no cgroup of version 2 can be made here, and CI skips nothing: ", err)
		}
		t.Skip("SKIP: no cgroup of version 2 can be made here: ", err)
	}
	t.Cleanup(func() {
		g.Remove()
		require.NoDirExists(t, g.Dir)
	})
	return g
}

func TestPrune_LiveWrapper_KeepsItsGroup(t *testing.T) {
	g := newGroup(t)
	prune(filepath.Dir(g.Dir))
	require.DirExists(t, g.Dir)
}

func TestPrune_EndedWrapper_RemovesItsGroup(t *testing.T) {
	g := newGroup(t)
	gone := self(t)
	gone.Started--
	other := gone
	other.Namespace++
	parent := filepath.Dir(g.Dir)
	for _, w := range []Wrapper{gone, other} {
		require.NoError(t, os.MkdirAll(filepath.Join(parent, w.Name(), "a", "b"), 0o755))
	}
	prune(parent)
	require.NoDirExists(t, filepath.Join(parent, gone.Name()))
	// Numbers of another pid namespace have no meaning here.
	require.DirExists(t, filepath.Join(parent, other.Name()))
	(&Group{Dir: filepath.Join(parent, other.Name())}).Remove()
}

func TestMake_NoPlace_ReturnsErrNone(t *testing.T) {
	_, err := Make(nil, nil)
	require.ErrorIs(t, err, ErrNone)
}

func TestMake_NarrowUmask_CommandMayRead(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	info, err := os.Stat(newGroup(t).Dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode().Perm())
}

func TestRemove_GroupsBelow_RemovesThem(t *testing.T) {
	g := newGroup(t)
	require.NoError(t, os.MkdirAll(filepath.Join(g.Dir, "a", "b"), 0o755))
}

func TestAdd_Process_IsMember(t *testing.T) {
	g := newGroup(t)
	sleeper := exec.Command("sleep", "1000")
	require.NoError(t, sleeper.Start())
	defer func() { _ = sleeper.Wait() }()
	require.NoError(t, g.Add(sleeper.Process.Pid))
	id, err := process.Of(sleeper.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, []process.ID{id}, g.Members())
	require.NoError(t, g.Kill())
}

func TestKill_ForkingMembers_LeavesNone(t *testing.T) {
	for name, kill := range map[string]func(g *Group) error{"cgroup.kill": (*Group).Kill, "frozen": (*Group).freezeAndKill} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			inner := filepath.Join(g.Dir, "inner")
			require.NoError(t, os.Mkdir(inner, 0o755))
			dir, err := os.Open(g.Dir)
			require.NoError(t, err)
			defer dir.Close()
			forker := exec.Command("sh", "-c", `trap "" TERM; setsid sh -c 'echo $$ >"$0"/cgroup.procs; exec sleep 1000' "$0" &
				while :; do (sleep 0.05 & sleep 0.05 &); done`, inner)
			forker.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
			require.NoError(t, forker.Start())
			eventually(t, func() bool { return (&Group{Dir: inner}).Populated() })
			require.True(t, g.Populated())
			require.False(t, slices.Contains(g.Members(), self(t).ID))
			require.NoError(t, kill(g))
			_ = forker.Wait()
			eventually(t, func() bool { return !g.Populated() || errors.Join(kill(g)) != nil })
		})
	}
}

// TestKill_NoKillFile_FreezesAndKills: as in a Linux before 5.14.
func TestKill_NoKillFile_FreezesAndKills(t *testing.T) {
	defer func(before string) { killFile = before }(killFile)
	killFile = "cgroup.no-such-file"
	g := newGroup(t)
	sleeper := exec.Command("sleep", "1000")
	require.NoError(t, sleeper.Start())
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	require.NoError(t, g.Add(sleeper.Process.Pid))
	require.NoError(t, g.CheckKill())
	require.NoError(t, g.Kill())
	eventually(t, func() bool { return !g.Populated() })
}

func TestKill_GroupThatIsGone_IsNoError(t *testing.T) {
	g := newGroup(t)
	require.NoError(t, (&Group{Dir: filepath.Join(g.Dir, "gone")}).Kill())
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for bound := time.Now().Add(soon); !holds(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(bound), "waited %v", soon)
	}
}

func TestNilGroup_HasNoMembers(t *testing.T) {
	var g *Group
	require.NoError(t, g.Kill())
	g.Remove()
	require.False(t, g.Populated())
	require.Empty(t, g.Members())
}

func FuzzParents(f *testing.F) { // 20000x
	f.Add("36 35 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/user.slice\n")
	f.Add(`1 1 1:1 /\040\134 /m - cgroup2 `, "0::/a/../b\n")
	f.Fuzz(func(t *testing.T, mounts, groups string) {
		dirs, err := parents(mounts, groups)
		require.Equal(t, err == nil, len(dirs) > 0)
		for _, dir := range dirs {
			require.Equal(t, filepath.Clean(dir), dir)
		}
	})
}
