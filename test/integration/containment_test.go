//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	proc "github.com/bakeryd/bakeryd/daemon/process"
)

// TestContainment_CgroupThatTakesNoProcess_IsReportedAsWeak runs bakeryctl in a threaded cgroup:
// bakeryd can create cgroups below it, but cannot move processes there.
func TestContainment_CgroupThatTakesNoProcess_IsReportedAsWeak(t *testing.T) {
	t.Parallel()
	parents, err := cgroup.Parents(os.Getpid())
	require.NoError(t, err)
	outer := filepath.Join(parents[0], filepath.Base(t.TempDir())+strconv.Itoa(os.Getpid()))
	threaded := filepath.Join(outer, "threaded")
	require.NoError(t, os.MkdirAll(threaded, 0o755))
	t.Cleanup(func() {
		(&cgroup.Group{Dir: outer}).Remove()
		require.NoDirExists(t, outer)
	})
	require.NoError(t, os.WriteFile(filepath.Join(threaded, "cgroup.type"), []byte("threaded"), 0))
	h := briefSpace(t).host(1)
	held := launch(t, h.dir, "sh", "-c", `echo $$ >"$0"/cgroup.procs; exec "$@"`, threaded,
		h.programs.bakeryctl, "lock", "--socket", h.socket, "-v", "x", "--", "sh", "-c", `echo $BAKERY_TOKEN; read line`)
	held.entered()
	holders := h.report("x").Holders
	require.Len(t, holders, 1)
	require.Contains(t, holders[0].Containment, "weak: move process")
	require.Contains(t, held.said(), "weak containment: ")
	groups, err := filepath.Glob(filepath.Join(threaded, "bakeryctl-*"))
	require.NoError(t, err)
	require.Empty(t, groups)
	held.letGo()
}

// TestContainment_DeviceFails_StopsAllOfAKilledWrapper: bakeryd also finds processes without a
// descriptor of the lock.
func TestContainment_DeviceFails_StopsAllOfAKilledWrapper(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fail", "hang"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := briefSpace(t)
			a, path := s.breakableHost(1)
			b := s.host(2)
			workers := []string{childWorker, daemonWorker, chainWorker}
			for _, worker := range workers {
				a.scattered(worker, worker, nil).signal(syscall.SIGKILL)
				b.waits(worker, "next", b)
			}
			path.trouble(how, "all")
			for _, worker := range workers {
				j := s.journal(worker)
				j.entered("next")
				j.gone("first")
				j.exclusive()
			}
		})
	}
}

// TestContainment_DaemonOfTheCommandLives_HoldsTheLock after the end of the command and the
// wrapper.
func TestContainment_DaemonOfTheCommandLives_HoldsTheLock(t *testing.T) {
	s, a, b := briefPair(t)
	j := s.journal("x")
	wrapper := a.scattered("x", daemonWorker, nil)
	wrapper.signal(syscall.SIGKILL)
	for _, pid := range a.processes() {
		if text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); strings.Contains(string(text), roleScatter) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	eventually(t, "the hold is an orphan", func() bool { return a.orphaned("x") })
	worker := j.find("first")
	require.Equal(t, []int{worker.pid}, a.report("x").Holders[0].Processes)
	b.waits("x", "next", a)
	j.outside("next")
	require.NoError(t, syscall.Kill(worker.pid, syscall.SIGKILL))
	j.entered("next")
	j.exclusive()
}

// TestContainment_CloseAndWrapperStopped_IsStopped: with --close the command does not hold the
// lock, but needs it.
func TestContainment_CloseAndWrapperStopped_IsStopped(t *testing.T) {
	s, a, b := briefPair(t)
	wrapper := a.scattered("x", daemonWorker, nil, "--close")
	require.Equal(t, "cgroup", a.report("x").Holders[0].Containment)
	b.waits("x", "next", b)
	wrapper.signal(syscall.SIGSTOP)
	r := b.ctl("evict", "1", "--yes")
	require.Zero(t, r.code, r.stderr)
	j := s.journal("x")
	j.entered("next")
	j.gone("first")
	j.exclusive()
	wrapper.signal(syscall.SIGCONT)
	wrapper.exits(75)
}

// TestContainment_BakerydInAnotherPidNamespace_IsWeak: it cannot see its clients, and reports that.
func TestContainment_BakerydInAnotherPidNamespace_IsWeak(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	h := s.machine("1")
	h.wrap = []string{"unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"}
	h.up()
	const why = "weak: bakeryd cannot see the client's process: it is in another pid namespace"
	held, _ := h.holds("x", "-v")
	require.Equal(t, why, h.report("x").Holders[0].Containment)
	require.Contains(t, held.said(), strings.TrimPrefix(why, "weak: "))
	held.letGo()
	r := h.lock("--require-containment", "x", "--", "true")
	require.Equal(t, 69, r.code)
	require.Contains(t, r.stderr, strings.TrimPrefix(why, "weak: "))
	require.Contains(t, r.stderr, "hint: ")
	h.free("x")
	h.crash() // SIGTERM does not end unshare
}

// TestContainment_NoCgroup_IsRefusedIfRequired, and the lock is released.
func TestContainment_NoCgroup_IsRefusedIfRequired(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	h := s.machine("1")
	h.wrap = withoutCgroups
	h.up()
	argv := append(slices.Clone(withoutCgroups), h.lockArgs("--require-containment", "x", "--", "true")...)
	r := execute(t, argv...)
	require.Equal(t, 69, r.code, r.stderr)
	require.Contains(t, r.stderr, `bakeryctl: not running true: it cannot be contained: `)
	require.Contains(t, r.stderr, "hint: ")
	h.free("x")
}

// TestContainment_DeviceLockOfAKilledWrapper_StopsAll: without bakeryd the guardian stops the
// command, even after a change of user.
func TestContainment_DeviceLockOfAKilledWrapper_StopsAll(t *testing.T) {
	t.Parallel()
	for _, how := range []string{childWorker, daemonWorker, chainWorker} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := briefSpace(t)
			require.NoError(t, os.Chmod(base, 0o711))
			require.NoError(t, os.Chmod(memory, 0o711))
			b := s.host(2)
			a := s.machine("1")
			j := s.journal("x")
			require.NoError(t, os.WriteFile(j.path, nil, 0o666))
			require.NoError(t, os.Chmod(j.path, 0o666))
			argv := append([]string{a.programs.bakeryctl, "lock", "--device", a.dev, "x", "--"}, asUser("games")...)
			wrapper := launch(t, a.dir, append(argv, s.copyOfSelf(0), roleScatter, j.path, "first", how)...)
			j.entered("first")
			b.work("x", "next")
			wrapper.signal(syscall.SIGKILL)
			j.gone("first")
			j.entered("next")
			j.exclusive()
		})
	}
}

// TestContainment_UnkillableProcess_IsReported: a process is in a system call on a hanging device.
func TestContainment_UnkillableProcess_IsReported(t *testing.T) {
	t.Parallel()
	s, other := briefSpace(t), briefSpace(t)
	h := s.host(1)
	hung := other.machine("1")
	path := hung.breakable()
	path.trouble("hang", "all")
	p := h.takeFor("x", `echo $BAKERY_TOKEN; exec dd if="`+hung.dev+`" of=/dev/null count=1 iflag=direct`)
	p.entered()
	wrapper := h.wrapper("x")
	eventually(t, "the command hangs", func() bool {
		return slices.ContainsFunc(h.processes(), func(pid int) bool {
			q, err := proc.Read(pid)
			return err == nil && q.Parent == wrapper.PID && q.State == 'D'
		})
	})
	next := s.host(2)
	h.signal(syscall.SIGSTOP) // ends its lease
	require.Zero(t, next.lock("x", "--", "true").code)
	eventually(t, "the wrapper reports what is left", func() bool {
		return strings.Contains(p.said(), `1 process of the command under "x" did not end by SIGKILL: pid `)
	})
	require.NotContains(t, p.said(), "killed the remaining processes")
	h.signal(syscall.SIGCONT)
	eventually(t, "bakeryd reports what is left", func() bool {
		return strings.Contains(h.said(), `msg="processes of a command that lost its lock are left" lock=x`)
	})
	r := h.ctl("events", "--json")
	require.Contains(t, r.stdout, `"remains"`)
	path.repair()
	p.exits(75)
	require.Contains(t, p.said(), "killed the remaining processes")
}
