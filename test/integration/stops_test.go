//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	proc "github.com/bakeryd/bakeryd/daemon/process"
)

// Which of wrapper and bakeryd stops a command that lost its lock. The tables in README.md and
// packaging/docs/failures.md show the results of these tests.

// How scatter starts its worker, which ignores SIGTERM and inherits no descriptor.
const (
	childWorker  = "child"  // as a child, like Python's subprocess
	daemonWorker = "daemon" // in its own session, with dead parents
	chainWorker  = "chain"  // at the end of a chain of processes that fork and end
)

// scatter is a command that starts a worker, and waits. From a set-user-ID file it first becomes
// that user.
func scatter(args []string) error {
	if uid := os.Geteuid(); uid != os.Getuid() {
		if err := errors.Join(unix.Setresgid(uid, uid, uid), unix.Setresuid(uid, uid, uid)); err != nil {
			return err
		}
	}
	worker := fmt.Sprintf("exec %s %s %s %s deaf", self(), roleWorker, args[0], args[1])
	switch args[2] {
	case daemonWorker:
		worker = fmt.Sprintf("setsid sh -c '%s' & exit", worker)
	case chainWorker:
		for range 5 {
			worker = fmt.Sprintf("sh -c %q & exit", worker)
		}
	}
	for fd := 3; fd < 256; fd++ {
		unix.CloseOnExec(fd)
	}
	cmd := exec.Command("sh", "-c", worker)
	if err := cmd.Run(); err != nil {
		return err
	}
	select {}
}

// scattered starts a wrapper whose command scatters a worker, and returns when the worker is
// inside. wrap, if not empty, starts the wrapper.
func (h *host) scattered(lock, how string, wrap []string, flags ...string) *process {
	h.t.Helper()
	return h.scatteredBy(self(), lock, how, wrap, flags...)
}

func (h *host) scatteredBy(program, lock, how string, wrap []string, flags ...string) *process {
	h.t.Helper()
	j := h.s.journal(lock)
	argv := slices.Concat(wrap, h.lockArgs(flags...),
		[]string{lock, "--", program, roleScatter, j.path, "first", how})
	p := launch(h.t, h.dir, argv...)
	j.entered("first")
	return p
}

// wrapper returns the process that waits for, or holds, a lock of this host.
func (h *host) wrapper(lock string) (found proc.ID) {
	h.t.Helper()
	eventually(h.t, "a wrapper of "+lock, func() bool {
		for _, pid := range h.processes() {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			argv := strings.Split(string(text), "\x00")
			if argv[0] == h.programs.bakeryctl && slices.Contains(argv, lock) {
				id, err := proc.Of(pid)
				found = id
				return err == nil
			}
		}
		return false
	})
	return found
}

// withoutCgroups starts a program without a mounted cgroup file system of version 2.
var withoutCgroups = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
	`grep ' - cgroup2 ' /proc/self/mountinfo | while read -r _ _ _ _ dir _; do umount -l "$dir" || exit 1; done && exec "$@"`, "sh"}

// inContainer starts a program in a pid namespace that it does not lead.
func (h *host) inContainer() []string {
	h.t.Helper()
	dir := filepath.Join(h.dir, "proc")
	require.NoError(h.t, os.MkdirAll(dir, 0o755))
	return []string{"unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c",
		`mount --bind /proc "$0" && mount -t proc proc /proc && export ` + hostProc + `="$0" && { "$@" & wait; read line; }`, dir}
}

// copyOfSelf returns a copy of the test binary that any user can execute.
func (s *space) copyOfSelf(mode os.FileMode) string {
	s.t.Helper()
	path := filepath.Join(s.dir, fmt.Sprintf("test-%o", mode))
	must(s.t, "cp", self(), path)
	require.NoError(s.t, os.Chmod(path, 0o755|mode))
	return path
}

// asUser starts a program as a user that may connect to bakeryd.
func asUser(name string) []string {
	return []string{"setpriv", "--reuid", name, "--regid", fmt.Sprint(admitted), "--clear-groups"}
}

// notRunning maps states of a process to the signals that cause them.
var notRunning = map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP}

// TestStops_AllThatRuns_WhicheverOfTheTwoIsLeft measures the tables.
func TestStops_AllThatRuns_WhicheverOfTheTwoIsLeft(t *testing.T) {
	t.Parallel()
	for _, bakeryd := range []string{"runs", "killed", "stopped"} {
		for _, wrapper := range []string{"runs", "killed", "stopped"} {
			t.Run(fmt.Sprintf("wrapper %s, bakeryd %s", wrapper, bakeryd), func(t *testing.T) {
				t.Parallel()
				testStops(t, wrapper, bakeryd)
			})
		}
	}
}

// cell is a column of the table: how a command is contained, and which of its processes survives.
type cell struct {
	lock   string
	on     *host
	holder *process // the wrapper, or the process that started it
	id     proc.ID  // the wrapper
	hidden bool     // bakeryd cannot find the worker: it closed its descriptors and is no descendant
	root   bool     // the wrapper may not kill the worker
}

// runsOn reports whether the worker is expected to outlive the grant to the next command.
func (c *cell) runsOn(wrapper, bakeryd string) bool {
	byWrapper, byBakeryd := wrapper == "runs" && !c.root, bakeryd == "runs" && !c.hidden
	return !byWrapper && !byBakeryd && !(wrapper == "runs" && bakeryd == "runs")
}

func testStops(t *testing.T, wrapper, bakeryd string) {
	s := briefSpace(t)
	path := s.policy(t, "allow user games *\n")
	with, without, next := s.machine("1", "--policy-file", path), s.machine("2", "--policy-file", path), s.host(3)
	without.wrap = withoutCgroups
	for _, h := range []*host{with, without} {
		h.up()
		h.open()
		require.NoError(t, os.Chmod(h.dir, 0o711))
	}
	root, games := s.copyOfSelf(os.ModeSetuid), asUser("games")
	cells := []*cell{
		{lock: "cgroup", on: with, holder: with.scattered("cgroup", daemonWorker, nil)},
		{lock: "cgroup-other-user", on: with, holder: with.scatteredBy(root, "cgroup-other-user", daemonWorker, games)},
		{lock: "cgroup-container", on: with, holder: with.scattered("cgroup-container", daemonWorker, with.inContainer())},
		{lock: "none", on: without, holder: without.scattered("none", childWorker, withoutCgroups)},
		{lock: "none-other-user", on: without, root: true,
			holder: without.scatteredBy(root, "none-other-user", childWorker, slices.Concat(withoutCgroups, games))},
		{lock: "none-daemon", on: without, hidden: true, holder: without.scattered("none-daemon", daemonWorker, withoutCgroups)},
	}
	for _, c := range cells {
		c.id = c.on.wrapper(c.lock)
		contained, _, _ := strings.Cut(c.on.report(c.lock).Holders[0].Containment, ":")
		require.Equal(t, map[*host]string{with: "cgroup", without: "weak"}[c.on], contained, c.lock)
		next.work(c.lock, "next")
	}
	for _, c := range cells {
		c.on.sees(next, c.lock)
		if wrapper != "runs" {
			require.NoError(t, c.id.Signal(notRunning[wrapper]))
		}
	}
	began := sinceBoot()
	for _, h := range []*host{with, without} {
		if bakeryd == "runs" {
			r := next.ctl("evict", h.id, "--yes")
			require.Zero(t, r.code, r.stderr)
		} else {
			h.signal(notRunning[bakeryd])
		}
	}
	for _, c := range cells {
		j := s.journal(c.lock)
		entered := j.entered("next")
		if c.runsOn(wrapper, bakeryd) {
			require.True(t, j.find("first").alive(), "%s: what stopped it?", c.lock)
			measured(t, c.lock+": fault to next command, while the first one runs on", entered.enter-began)
			if wrapper == "runs" {
				eventually(t, "the wrapper reports what it may not kill", func() bool {
					return strings.Contains(c.holder.said(), `of the command under "`+c.lock+`" did not end by SIGKILL: pid `)
				})
			}
			continue
		}
		first := j.gone("first")
		measured(t, c.lock+": fault to end of the command", first.last-began)
		measured(t, c.lock+": end of the command to next command", entered.enter-first.last)
		j.exclusive()
	}
	back := sinceBoot()
	for _, h := range []*host{with, without} {
		switch bakeryd {
		case "killed":
			h.up()
		case "stopped":
			h.signal(syscall.SIGCONT)
		}
	}
	for _, c := range cells {
		if !c.runsOn(wrapper, bakeryd) {
			continue
		}
		j := s.journal(c.lock)
		if c.hidden && wrapper == "killed" {
			require.True(t, j.find("first").alive(), "%s: what stopped it?", c.lock) // and nothing stops it later
			continue
		}
		if wrapper == "stopped" && c.hidden {
			require.NoError(t, c.id.Signal(syscall.SIGCONT))
		}
		measured(t, c.lock+": runs again to end of the command", j.gone("first").last-back)
	}
}
