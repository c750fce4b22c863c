package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/test/standstill"
)

func TestDescendants(t *testing.T) {
	a := func(pid, parent int, started uint64) process.Stat {
		return process.Stat{ID: process.ID{PID: pid, Started: started}, Parent: parent, State: 'S', Threads: 1}
	}
	tests := []struct {
		name  string
		table []process.Stat
		want  []int
	}{
		{"none", []process.Stat{a(1, 0, 0), a(10, 1, 5)}, nil},
		{"strangers", []process.Stat{a(10, 1, 5), a(11, 1, 200), a(12, 11, 201)}, nil},
		{"parents first, even with a greater pid", []process.Stat{a(5, 30, 103), a(20, 10, 100), a(30, 20, 102), a(40, 10, 101)},
			[]int{20, 30, 40, 5}},
		{"older children are left out", []process.Stat{a(20, 10, 99), a(21, 20, 150), a(30, 10, 100)}, []int{30}},
		{"a circle", []process.Stat{a(20, 10, 100), a(10, 20, 100)}, []int{20}},
	}
	for _, test := range tests {
		var got []int
		for _, p := range process.Descendants(test.table, []int{10}, func(p process.Stat) bool { return p.Parent == 10 && p.Started < 100 }) {
			got = append(got, p.PID)
		}
		require.Equal(t, test.want, got, test.name)
	}
}

// pids blocks until each named file contains a process id, and returns them. It kills these
// processes after the test.
func pids(t *testing.T, dir string, names ...string) map[string]int {
	t.Helper()
	found := make(map[string]int)
	eventually(t, "process ids in "+dir, func() bool {
		for _, name := range names {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			line, complete := strings.CutSuffix(string(text), "\n")
			pid, err := strconv.Atoi(line)
			if !complete || err != nil {
				return false
			}
			found[name] = pid
		}
		return true
	})
	t.Cleanup(func() {
		for _, pid := range found {
			if alive(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return found
}

// family starts descendants of every kind, which write their process ids to files.
const family = `cd "$0"; exec 2>/dev/null
sh -c 'echo $$ >child; sleep 1000; :' &
sh -c 'trap "" TERM; echo $$ >stubborn; exec sleep 1000' &
sh -c 'echo $$ >stopped; kill -STOP $$; sleep 1000; :' &
setsid sh -c 'echo $$ >session; sleep 1000; :' &
(sh -c 'echo $$ >orphan; exec sleep 1000' &)
(setsid sh -c 'trap "" TERM; echo $$ >daemon; sleep 1000 & exec sleep 1000' &)
`

var familyMembers = []string{"child", "stubborn", "stopped", "session", "orphan", "daemon"}

// loses returns a bakeryd that grants a lock for a lease, and takes it away when running is closed.
func loses(t *testing.T, lease time.Duration, running <-chan struct{}) *fakeBakeryd {
	return serve(t, func(x *exchange) {
		x.Grant(lease)
		select {
		case <-running:
			x.Send(`{"event":"lost","message":"host 3 was evicted"}`)
			<-x.Gone
		case <-x.Gone:
		}
	})
}

func TestLock_Lost_StopsDescendants(t *testing.T) {
	t.Parallel()
	const (
		stopping = "bakeryctl: stopping the command under \"x\": lock lost: host 3 was evicted\n"
		killed   = "bakeryctl: killed the remaining processes of the command under \"x\": they did not stop in time\n"
	)
	tests := []struct {
		name    string
		lease   time.Duration
		command string
		members []string
		stderr  string
	}{
		{"of a command that ends immediately", standstill.Lease, family + `exec sleep 1000`, familyMembers, stopping + killed},
		{"of a command that ignores SIGTERM", standstill.Lease, family + `trap "" TERM; exec sleep 1000`, familyMembers, stopping + killed},
		{"that handle SIGTERM, without SIGKILL", time.Hour, `cd "$0"
			exec 2>/dev/null
			setsid sh -c 'echo $$ >session; sleep 1000; :' &
			(sh -c 'echo $$ >orphan; sleep 1000; :' &)
			sleep 1000; :`, []string{"session", "orphan"}, stopping},
		{"that fork all the time", standstill.Lease, `cd "$0"; exec 2>/dev/null; trap "" TERM
			sh -c 'echo $$ >forker; while :; do (sleep 0.05 & sleep 0.05 &); done' &
			wait; exec sleep 1000`, []string{"forker"}, stopping + killed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			running := make(chan struct{})
			b := loses(t, test.lease, running)
			dir := t.TempDir()
			p := begin(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", test.command, dir)
			members := pids(t, dir, test.members...)
			if pid, ok := members["stopped"]; ok {
				eventually(t, "a process to be stopped", func() bool { return state(pid) == "T" })
			}
			close(running)
			p.exits(cli.ExitLost)
			for name, pid := range members {
				require.False(t, alive(pid), "%s still runs", name)
			}
			require.Empty(t, in(t, dir), "processes remain")
			p.printed(t, "", test.stderr)
		})
	}
}

// in returns the processes whose working directory is dir.
func in(t *testing.T, dir string) []int {
	t.Helper()
	table, err := process.Table()
	require.NoError(t, err)
	var found []int
	for _, p := range table {
		if at, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/cwd"); err == nil && at == dir {
			found = append(found, p.PID)
		}
	}
	return found
}

// A shell that executes bakeryctl leaves its own children to it.
func TestLock_LostWithOlderChildren_SparesThem(t *testing.T) {
	running := make(chan struct{})
	b := loses(t, time.Hour, running)
	dir := t.TempDir()
	exe, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), asItself)
	require.NoError(t, os.Symlink(exe, link))
	p := prepare(t)
	p.cmd.Path = "/bin/sh"
	// With the pause, the two start in different clock ticks.
	p.cmd.Args = []string{"sh", "-c", `sleep 1000 & echo $! >"$0/older"; sleep 0.1; exec "$@"`, dir,
		link, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", `echo $$ >"$0/command"; sleep 1000; :`, dir}
	p.start()
	members := pids(t, dir, "older", "command")
	close(running)
	p.exits(cli.ExitLost)
	require.False(t, alive(members["command"]))
	require.True(t, alive(members["older"]))
}

func TestLock_OrphanEnds_IsReaped(t *testing.T) {
	t.Parallel()
	b := serve(t, holding)
	dir := t.TempDir()
	p := follow(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c",
		`(sh -c 'echo $$ >"$0/orphan"; exit 3' "$0" &); echo ready; read x; exit 7`, dir)
	p.expect("ready")
	orphan := pids(t, dir, "orphan")["orphan"]
	eventually(t, "the orphan to be reaped", func() bool { return state(orphan) == "X" })
	p.write("")
	p.exits(7)
	require.Empty(t, p.messages())
}

func TestLock_CommandEnds_DescendantsKeepTheLock(t *testing.T) {
	t.Parallel()
	b := serve(t, holding)
	dir := t.TempDir()
	p := begin(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", family+
		`for f in child stubborn stopped session orphan daemon; do until test -s $f; do sleep 0.01; done; done; exit 7`, dir)
	members := pids(t, dir, familyMembers...)
	p.exits(7)
	p.printed(t, "", "")
	for name, pid := range members {
		if name != "stopped" && !alive(pid) { // an orphaned group with a stopped process gets SIGHUP
			t.Errorf("%s has ended", name)
		}
	}
	require.True(t, b.Held(), "the descendants do not hold the lock")
	for _, pid := range in(t, dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
