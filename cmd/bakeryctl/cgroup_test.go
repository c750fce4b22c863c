package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/daemon/process"
)

func TestCgroupDirs(t *testing.T) {
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
		if got, _ := cgroupDirs(test.mounts, test.groups); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestCgroupNames(t *testing.T) {
	id := process.ID{PID: 17, Started: 4711}
	if owner, ok := cgroupOwner(cgroupName(id)); !ok || owner != id {
		t.Errorf("%q is of %v, %v", cgroupName(id), owner, ok)
	}
	for _, name := range []string{"", "bakeryctl-", "bakeryctl-1", "bakeryctl-1-2-3", "bakeryctl-01-2", "bakeryctl-1-2 ", "cron.service"} {
		if owner, ok := cgroupOwner(name); ok {
			t.Errorf("%q is of %v", name, owner)
		}
	}
}

// cgroupParent returns the directory in which commands started by this test get their groups.
func cgroupParent(t *testing.T) string {
	t.Helper()
	g := findPlace().make()
	if g == nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no cgroup of version 2 can be made here, and CI skips nothing")
		}
		t.Skip("SKIP: no cgroup of version 2 can be made here")
	}
	g.remove()
	if _, err := os.Stat(g.dir); err == nil {
		t.Fatalf("%s is still there", g.dir)
	}
	return filepath.Dir(g.dir)
}

// groupOf returns the directory of the group of a bakeryctl.
func groupOf(t *testing.T, parent string, p *wrapper) string {
	t.Helper()
	id, err := process.Of(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(parent, cgroupName(id))
}

// without makes a bakeryctl one that can make no cgroup.
func (p *wrapper) without(t *testing.T, parent string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), asItself)
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Path = unshare
	p.cmd.Args = append([]string{"unshare", "--mount", "sh", "-c", `umount -l "$0" && exec "$@"`, parent, link}, p.cmd.Args[1:]...)
}

func TestCommandRunsInItsOwnCgroup(t *testing.T) {
	parent := cgroupParent(t)
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "grep ^0:: /proc/self/cgroup; read x")
	group := groupOf(t, parent, p)
	if got := p.line(); filepath.Base(got) != filepath.Base(group) {
		t.Errorf("runs in %q, want %q", got, group)
	}
	p.write("")
	if code := p.wait(); code != 0 || p.told() != "" {
		t.Errorf("exit code %d, standard error %q", code, p.told())
	}
	if _, err := os.Stat(group); err == nil {
		t.Error("the group is left")
	}
}

func TestCommandRunsWithoutACgroup(t *testing.T) {
	t.Parallel()
	mount := cgroupParent(t)
	for ; mount != "/"; mount = filepath.Dir(mount) { // its mount point
		var here, above syscall.Stat_t
		if syscall.Stat(mount, &here) != nil || syscall.Stat(filepath.Dir(mount), &above) != nil || here.Dev != above.Dev {
			break
		}
	}
	running := make(chan struct{})
	b := loses(t, 6*time.Second, running)
	dir := t.TempDir()
	p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", family+`grep ^0:: /proc/self/cgroup >group; exec sleep 1000`, dir)
	p.without(t, mount)
	p.start()
	members := pids(t, dir, familyMembers...)
	eventually(t, "the command to show its group", func() bool { return read(t, dir, "group") != "" })
	if got := read(t, dir, "group"); strings.Contains(got, cgroupPrefix) {
		t.Errorf("runs in %s", got)
	}
	close(running)
	if code := p.wait(); code != exitLost {
		t.Errorf("exit code %d, want %d; standard error %q", code, exitLost, p.told())
	}
	for name, pid := range members {
		if alive(pid) {
			t.Errorf("%s runs on", name)
		}
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func TestCgroupThatIsLeftIsPruned(t *testing.T) {
	parent := cgroupParent(t)
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ready; read x")
	p.expect("ready")
	group := groupOf(t, parent, p)
	if err := os.MkdirAll(filepath.Join(group, "a", "b"), 0o755); err != nil { // a command may make some itself
		t.Fatal(err)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	next := func() {
		t.Helper()
		other := begin(t, "lock", "--socket", b.Socket, "y", "--", "true")
		if code := other.wait(); code != 0 {
			t.Errorf("exit code %d, standard error %q", code, other.told())
		}
	}
	next()
	if _, err := os.Stat(filepath.Join(group, "a", "b")); err != nil {
		t.Error("the group of a command that runs was touched")
	}
	p.write("")
	eventually(t, "the command to end", func() bool { return !populated(group) })
	next()
	if _, err := os.Stat(group); err == nil {
		t.Error("the group is left")
	}
}

func TestCgroupAboutToBeUsedIsNotPruned(t *testing.T) {
	parent := cgroupParent(t)
	g := findPlace().make()
	defer g.remove()
	pruneCgroups(parent)
	if _, err := os.Stat(g.dir); err != nil {
		t.Error("pruned an empty group of a process that lives")
	}
}

func TestCgroupIsMadeWhereTheProcessIsNow(t *testing.T) {
	parent := cgroupParent(t)
	moved := findPlace()
	moved.groups, moved.parents = "0::/elsewhere\n", []string{t.TempDir()}
	g := moved.make()
	defer g.remove()
	if g == nil || filepath.Dir(g.dir) != parent {
		t.Errorf("group %+v, want it in %s", g, parent)
	}
}

func TestCgroupWithGroupsBelowIsRemoved(t *testing.T) {
	cgroupParent(t)
	g := findPlace().make()
	if err := os.MkdirAll(filepath.Join(g.dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	g.remove()
	if _, err := os.Stat(g.dir); err == nil {
		t.Errorf("%s is still there", g.dir)
	}
}

func TestCgroupKill(t *testing.T) {
	cgroupParent(t)
	for name, kill := range map[string]func(g *cgroup){
		"at one blow": (*cgroup).kill,
		"frozen":      (*cgroup).freezeAndKill,
	} {
		t.Run(name, func(t *testing.T) {
			g := findPlace().make()
			defer g.remove()
			inner := filepath.Join(g.dir, "inner")
			if err := os.Mkdir(inner, 0o755); err != nil {
				t.Fatal(err)
			}
			forker := exec.Command("sh", "-c", fmt.Sprintf(`trap "" TERM; setsid sh -c 'echo $$ >%s/cgroup.procs; exec sleep 1000' &
				while :; do (sleep 0.05 & sleep 0.05 &); done`, inner))
			forker.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.fd}
			if err := forker.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the inner group to be used", func() bool { return populated(inner) })
			if g.empty() {
				t.Error("empty though somebody is below")
			}
			for pid, handle := range g.members() {
				if pid == os.Getpid() {
					t.Error("this process is a member")
				}
				_ = handle.Release()
			}
			kill(g)
			_ = forker.Wait()
			eventually(t, "everybody to die", func() bool { kill(g); return g.empty() })
		})
	}
}

func TestNoCgroup(t *testing.T) {
	var g *cgroup
	g.kill()
	g.remove()
	if !g.empty() || len(g.members()) != 0 {
		t.Error("somebody is in no group")
	}
}
