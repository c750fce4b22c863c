package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// cgroupParent returns the directory of the groups of commands that this test starts.
func cgroupParent(t *testing.T) string {
	t.Helper()
	g, err := cgroup.Make(cgroup.Of(os.Getpid(), ""))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("cannot create a cgroup of version 2, and CI skips nothing: ", err)
		}
		t.Skip("SKIP: cannot create a cgroup of version 2: ", err)
	}
	g.Remove()
	return filepath.Dir(g.Dir)
}

// groupOf returns the directory of the group of a bakeryctl.
func groupOf(t *testing.T, parent string, p *wrapper) string {
	t.Helper()
	groups, err := cgroup.Of(p.cmd.Process.Pid, "")
	require.NoError(t, err)
	var found []string
	eventually(t, "the group", func() bool {
		found, err = filepath.Glob(filepath.Join(parent, filepath.Base(groups[0].Dir)+"-*")) // one per session
		return err == nil && len(found) == 1
	})
	return found[0]
}

// without makes p unable to create a cgroup.
func (p *wrapper) without(t *testing.T, parent string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), asItself)
	require.NoError(t, os.Symlink(exe, link))
	unshare, err := exec.LookPath("unshare")
	require.NoError(t, err)
	p.cmd.Path = unshare
	p.cmd.Args = append([]string{"unshare", "--mount", "sh", "-c", `umount -l "$0" && exec "$@"`, parent, link}, p.cmd.Args[1:]...)
}

func TestCommandRunsInItsOwnCgroup(t *testing.T) {
	parent := cgroupParent(t)
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "grep ^0:: /proc/self/cgroup; read x")
	group := groupOf(t, parent, p)
	require.Equal(t, filepath.Base(group), filepath.Base(p.line()))
	p.write("")
	p.exits(0)
	require.Empty(t, p.messages())
	require.NoDirExists(t, group, "the group remains")
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
	b := loses(t, standstill.Outlives(6*time.Second), running)
	dir := t.TempDir()
	p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", family+`grep ^0:: /proc/self/cgroup >group; exec sleep 1000`, dir)
	p.without(t, mount)
	p.start()
	members := pids(t, dir, familyMembers...)
	eventually(t, "the command to show its group", func() bool { return read(t, dir, "group") != "" })
	require.NotContains(t, read(t, dir, "group"), "bakeryctl-")
	close(running)
	p.exits(cli.ExitLost)
	for name, pid := range members {
		require.False(t, alive(pid), "%s still runs", name)
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

func TestCgroup_WrapperKilled_IsPrunedByTheNext(t *testing.T) {
	parent := cgroupParent(t)
	b := serve(t, holding)
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "echo ready; read x")
	p.expect("ready")
	group := groupOf(t, parent, p)
	if err := os.MkdirAll(filepath.Join(group, "a", "b"), 0o755); err != nil { // as a command may do itself
		t.Fatal(err)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	next := func() {
		t.Helper()
		other := begin(t, "lock", "--socket", b.Socket, "y", "--", "true")
		if code := other.wait(); code != 0 {
			t.Errorf("exit code %d, standard error %q", code, other.messages())
		}
	}
	next()
	require.DirExists(t, filepath.Join(group, "a", "b"), "the group of a running command was removed")
	p.write("")
	eventually(t, "the command to end", func() bool { return !(&cgroup.Group{Dir: group}).Populated() })
	next()
	require.NoDirExists(t, group, "the group remains")
}
