//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unitHost is a machine with systemd and the units of packaging/systemd, unchanged.
type unitHost struct {
	*machine
	id int
}

// Sizes of the disks in megabytes, by which the tests find them.
var unitDisks = map[string]int64{"locks": 16, "data": 24, "slow": 12, "fenced": 10}

const (
	unitLease = 30 * time.Second // lease for which the units are written
	slowLease = 60 * time.Second // lease of the lockspace for reboots
)

// The shipped units and their examples work on two hosts with systemd. Holds survive reload,
// restart, SIGKILL and SIGSTOP of bakeryd. A service, a filesystem, a nightly job and reboots
// follow the locks. bakeryd can do all its work in its sandbox.
func TestUnits(t *testing.T) {
	t.Parallel()
	images := make([]string, 0, len(unitDisks))
	for _, name := range []string{"locks", "data", "slow", "fenced"} {
		images = append(images, image(t, name, unitDisks[name]))
	}
	format(t, images[0], "--lease", unitLease.String())
	format(t, images[2], "--lease", slowLease.String())
	format(t, images[3], "--policy", "fence")
	require.NoError(t, execute(base, "mkfs.ext4", "-q", "-F", "-L", "data", images[1]))
	s := serve(t, images...)

	began := time.Now()
	var hosts []*unitHost
	for i, name := range []string{"a", "b"} {
		m := systemd.start(t, name, scsi(name, s.unit(1), s.unit(2), s.unit(3), s.unit(4))...)
		hosts = append(hosts, &unitHost{m, i + 1})
	}
	a, b := hosts[0], hosts[1]
	t.Cleanup(func() {
		if t.Failed() {
			for _, h := range hosts {
				h.explain()
			}
		}
	})
	for _, h := range hosts {
		h.bootedWithin(bootPatience, 1)
		h.setUp()
	}
	t.Logf("measured: up after %v", time.Since(began).Round(time.Second))

	for _, step := range []struct {
		name string
		run  func(t *testing.T, a, b *unitHost)
	}{
		{"start", startUnits},
		{"sandbox", sandboxed},
		{"service", activePassive},
		{"filesystem", oneMount},
		{"reload, restart, kill", bakerydRestarts},
		{"stands still", bakerydStands},
		{"move", moveAll},
		{"nightly", nightly},
		{"watchdog and fencing", lastDefences},
		{"commands of a user", usersCommand},
		{"stop of a unit", stoppedByUnit},
		{"bakeryctl killed", killedByGroup},
		{"reboot", rebootInTurn},
	} {
		if step.name == "reboot" && !*inTurn {
			t.Log("reboot is skipped without -reboot")
			continue
		}
		if !t.Run(step.name, func(t *testing.T) {
			for _, h := range hosts {
				h.during(t)
			}
			began := time.Now()
			step.run(t, a, b)
			t.Logf("took %v", time.Since(began).Round(time.Second))
		}) {
			return
		}
	}
}

// explain prints systemd's state after a failure, if it still answers.
func (h *unitHost) explain() {
	c := h.start("sh", "-c", `export SYSTEMD_PAGER=
		systemctl --failed; systemctl list-jobs; systemctl status 'baker*' srv-data.mount web.service; journalctl -b -n 200`)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && c.runs(); {
		time.Sleep(50 * time.Millisecond)
	}
	h.t.Logf("%s: %s", h.name, c.said())
}

// setUp names the disks of a booted machine, and writes bakeryd's settings.
func (h *unitHost) setUp() {
	h.t.Helper()
	h.nameDisks(unitDisks)
	h.sh(fmt.Sprintf(`cd /etc/bakery
		printf 'BAKERYD_DEVICE=/dev/locks\nBAKERYD_HOST_ID=%d\n' >bakeryd.env
		printf 'BAKERYD_DEVICE=/dev/slow\nBAKERYD_HOST_ID=%d\n' >slow.env
		printf 'BAKERYD_DEVICE=/dev/slow\nBAKERYD_HOST_ID=3\n' >third.env
		printf 'BAKERYD_DEVICE=/dev/fenced\nBAKERYD_HOST_ID=%d\n' >fenced.env`, h.id, h.id, h.id))
}

// pid returns the main process of a unit.
func (h *unitHost) pid(unit string) string {
	h.t.Helper()
	pid := h.show(unit, "MainPID")
	require.NotEqual(h.t, "0", pid, "%s on %s runs", unit, h.name)
	return pid
}

func startUnits(t *testing.T, a, b *unitHost) {
	for _, h := range []*unitHost{a, b} {
		h.run("systemctl", "start", "bakeryd") // after the join
		require.Equal(t, "active", h.show("bakeryd", "ActiveState"))
		require.Equal(t, fmt.Sprintf("host %d on /dev/locks", h.id), h.show("bakeryd", "StatusText"))
	}
	require.Equal(t, "works\n", a.run("bakeryctl", "lock", "first", "--", "echo", "works"))
}

var statusLine = regexp.MustCompile(`(?m)^(\w+):\s+(.*)$`)

// sandboxed: the sandbox is in force, and bakeryd's memory is locked and small.
func sandboxed(t *testing.T, a, _ *unitHost) {
	is := map[string]string{}
	for _, m := range statusLine.FindAllStringSubmatch(a.run("cat", "/proc/"+a.pid("bakeryd")+"/status"), -1) {
		is[m[1]] = m[2]
	}
	require.Equal(t, "1", is["NoNewPrivs"])
	require.Equal(t, "2", is["Seccomp"])
	require.Equal(t, is["CapBnd"], is["CapEff"])
	caps, err := strconv.ParseUint(is["CapEff"], 16, 64)
	require.NoError(t, err)
	require.Equal(t, uint64(1<<0|1<<1|1<<5|1<<17|1<<19|1<<21), caps, "CHOWN, DAC_OVERRIDE, KILL, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN")
	kilobytes := func(what string) int {
		n, err := strconv.Atoi(strings.TrimSuffix(is[what], " kB"))
		require.NoError(t, err, what)
		return n
	}
	t.Logf("measured: %d kB resident, at most %d", kilobytes("VmRSS"), kilobytes("VmHWM"))
	require.Less(t, kilobytes("VmRSS"), 20<<10)
	require.Positive(t, kilobytes("VmLck"))
	require.Equal(t, "-900\n", a.run("cat", "/proc/"+a.pid("bakeryd")+"/oom_score_adj"))
	require.Equal(t, "660 root:bakery\n", a.run("stat", "-c", "%a %U:%G", "/run/bakery/bakeryd.sock"))
	require.NotContains(t, a.journal("bakeryd"), "memory not locked")
}

// activePassive: web.service runs where its lock is held.
func activePassive(t *testing.T, a, b *unitHost) {
	for _, h := range []*unitHost{a, b} {
		h.run("systemctl", "enable", "web.service", "bakery-lock@web.service")
	}
	a.run("systemctl", "start", "bakery-lock@web.service")
	a.active("web.service", "active")
	b.run("systemctl", "start", "--no-block", "bakery-lock@web.service")
	eventually(t, "b waits", func() bool { return b.show("bakery-lock@web.service", "StatusText") == "waiting for web: 1 ahead" })
	require.Equal(t, "activating", b.show("bakery-lock@web.service", "ActiveState"))
	require.Equal(t, "inactive", b.show("web.service", "ActiveState"))
}

// oneMount: srv-data.mount is mounted where its lock is held.
func oneMount(t *testing.T, a, b *unitHost) {
	for _, h := range []*unitHost{a, b} {
		h.run("systemctl", "enable", "srv-data.mount", "bakery-lock@data.service")
	}
	a.run("systemctl", "start", "bakery-lock@data.service")
	a.active("srv-data.mount", "active")
	a.sh("echo of a >/srv/data/word; sync")
	b.run("systemctl", "start", "--no-block", "bakery-lock@data.service")
	eventually(t, "b waits", func() bool { return b.show("bakery-lock@data.service", "StatusText") == "waiting for data: 1 ahead" })
	require.Equal(t, "inactive", b.show("srv-data.mount", "ActiveState"))
}

// undisturbed returns the tokens held on a host, and the processes under them.
func (h *unitHost) undisturbed() []string {
	h.t.Helper()
	h.active("web.service", "active")
	h.active("srv-data.mount", "active")
	return []string{h.show("bakery-lock@web.service", "StatusText"), h.show("bakery-lock@data.service", "StatusText"),
		h.pid("web.service"), h.pid("bakery-lock@web.service"), h.pid("bakery-lock@data.service")}
}

// again waits until bakeryd has restarted and serves.
func (h *unitHost) again(before, restarts string) {
	h.t.Helper()
	eventually(h.t, "bakeryd of "+h.name+" is started again", func() bool { // each call is slow: only the last one is current
		return h.show("bakeryd", "NRestarts") != restarts && h.show("bakeryd", "MainPID") != before && h.show("bakeryd", "ActiveState") == "active"
	})
	h.run("bakeryctl", "lock", "first", "--", "true")
}

// bakerydRestarts: holds survive.
func bakerydRestarts(t *testing.T, a, b *unitHost) {
	held, pid := a.undisturbed(), a.pid("bakeryd")
	a.run("systemctl", "reload", "bakeryd")
	a.run("bakeryctl", "lock", "first", "--", "true")
	require.Equal(t, pid, a.pid("bakeryd"), "a reload is no restart")

	a.run("systemctl", "restart", "bakeryd")
	require.NotEqual(t, pid, a.pid("bakeryd"))
	require.Equal(t, held, a.undisturbed(), "after a restart")

	pid, restarts := a.pid("bakeryd"), a.show("bakeryd", "NRestarts")
	a.run("systemctl", "kill", "-s", "KILL", "bakeryd")
	a.again(pid, restarts)
	require.Equal(t, held, a.undisturbed(), "after SIGKILL")
	require.Equal(t, "inactive", b.show("web.service", "ActiveState"))
	require.Contains(t, a.journal("bakeryd"), "resuming the state of the previous bakeryd")
}

// bakerydStands: systemd's watchdog finds a paused bakeryd, and restarts it within the lease.
func bakerydStands(t *testing.T, a, b *unitHost) {
	held, pid, restarts := a.undisturbed(), a.pid("bakeryd"), a.show("bakeryd", "NRestarts")
	began := time.Now()
	a.run("systemctl", "kill", "-s", "STOP", "bakeryd")
	a.again(pid, restarts)
	took := time.Since(began)
	t.Logf("measured: a bakeryd that stands still is replaced after %v", took.Round(10*time.Millisecond))
	require.Contains(t, a.journal("bakeryd"), "Watchdog timeout")
	if !strings.Contains(a.journal("bakery-lock@web.service"), "lost \"web\"") {
		require.Equal(t, held, a.undisturbed())
		return
	}
	// On a very slow machine it may be too late: then the log says so, and the lock passes on.
	require.Greater(t, took, unitLease-2*unitLease/6, "the lock was lost while the lease ran")
	t.Logf("too late on this machine, the holds were lost: %s", a.journal("bakery-lock@web.service"))
	a.active("bakery-lock@web.service", "activating", "active")
}

// moveAll: everything on a moves to b, and not before a has stopped it.
func moveAll(t *testing.T, a, b *unitHost) {
	holder, next := a, b
	if b.show("web.service", "ActiveState") == "active" { // a lost it before
		holder, next = b, a
	}
	holder.run("systemctl", "restart", "--no-block", "bakery-lock@web.service")
	next.active("web.service", "active")
	require.Equal(t, "inactive", holder.show("web.service", "ActiveState"))
	holder.active("bakery-lock@web.service", "activating")

	holder.run("systemctl", "stop", "bakery-lock@data.service")
	require.Equal(t, "inactive", holder.show("srv-data.mount", "ActiveState"))
	next.active("srv-data.mount", "active")
	require.Equal(t, "of a\n", next.run("cat", "/srv/data/word"))

	// A holder that is killed ends: the units bound to it are stopped.
	before := next.show("srv-data.mount", "InvocationID")
	next.run("systemctl", "kill", "-s", "KILL", "bakery-lock@data.service")
	eventually(t, "it is mounted again", func() bool {
		return next.show("srv-data.mount", "InvocationID") != before && next.show("srv-data.mount", "ActiveState") == "active"
	})
	require.Equal(t, "active", next.show("bakery-lock@data.service", "ActiveState"))
}

// nightly: one host runs the job, and the other finds it done.
func nightly(t *testing.T, a, b *unitHost) {
	first := a.start("systemctl", "start", "nightly.service")
	second := b.start("systemctl", "start", "nightly.service")
	first.exits(0)
	second.exits(0)
	said := a.journal("nightly.service") + b.journal("nightly.service")
	require.Equal(t, 1, strings.Count(said, "nightly runs on"), said)
	require.Equal(t, 1, strings.Count(said, "done already"), said)
	for _, h := range []*unitHost{a, b} {
		h.run("systemctl", "start", "nightly.timer")
		require.Equal(t, "active", h.show("nightly.timer", "ActiveState"))
	}
}

// lastDefences: in its sandbox bakeryd can arm and disarm a watchdog, register for fencing, and
// fence another host.
func lastDefences(t *testing.T, a, b *unitHost) {
	const socket = "/run/bakery/fenced.sock"
	b.sh("echo BAKERYD_WATCHDOG=/dev/watchdog >>/etc/bakery/fenced.env")
	b.run("systemctl", "start", "bakeryd@fenced") // first: see gather
	require.Contains(t, b.journal("bakeryd@fenced"), "watchdog armed")
	a.run("systemctl", "start", "bakeryd@fenced")
	held := a.start("bakeryctl", "--socket", socket, "lock", "x", "--", "sh", "-c", "echo held; exec sleep infinity")
	held.says("held")
	a.run("systemctl", "stop", "bakeryd@fenced")                                                        // permanently
	require.Equal(t, "works\n", b.sh("bakeryctl --socket "+socket+" lock x -- echo works 2>/dev/null")) // it says that it waits
	held.exits(75)
	require.Contains(t, b.journal("bakeryd@fenced"), "host fenced")
	b.run("systemctl", "stop", "bakeryd@fenced")
	require.NotContains(t, b.journal("bakeryd@fenced"), "disarming the watchdog failed")
}

// usersCommand: the sandboxed bakeryd finds and stops the processes of another user's command.
func usersCommand(t *testing.T, a, _ *unitHost) {
	c := a.start("runuser", "-u", "joe", "--", "bakeryctl", "lock", "joes", "--", "sh", "-c", `trap '' TERM; echo "$$ of $PPID."; exec sleep infinity`)
	c.says(".")
	pids := regexp.MustCompile(`(\d+) of (\d+)\.`).FindStringSubmatch(c.said())
	require.NotNil(t, pids, c.said())
	a.run("kill", "-KILL", pids[2])
	eventually(t, "bakeryctl is gone", func() bool { return !c.runs() })
	a.run("kill", "-0", pids[1])
	began := time.Now()
	a.run("systemctl", "kill", "-s", "INT", "bakeryd") // stops all holders, then leaves
	a.active("bakeryd", "inactive")
	t.Logf("measured: all holders stopped after %v", time.Since(began).Round(100*time.Millisecond))
	require.Equal(t, "gone\n", a.sh("kill -0 "+pids[1]+" 2>/dev/null || echo gone"))
	a.run("systemctl", "start", "bakeryd")
}

// holders returns the ids of the hosts that hold a lock.
func (m *machine) holders(socket, name string) (ids []int) {
	m.t.Helper()
	var status struct {
		Locks []struct {
			Name    string
			Holders []struct{ Host int }
		}
	}
	require.NoError(m.t, json.Unmarshal([]byte(m.run("bakeryctl", "--socket", socket, "status", "--json")), &status))
	for _, l := range status.Locks {
		if l.Name == name {
			for _, x := range l.Holders {
				ids = append(ids, x.Host)
			}
		}
	}
	return ids
}

// rebootInTurn: there are two permits. a reboots with one, which no other host gets during the
// longest reboot.
func rebootInTurn(t *testing.T, a, b *unitHost) {
	b.run("systemctl", "start", "bakeryd@slow", "bakeryd@third")
	a.run("systemctl", "start", "bakeryd@slow")
	a.run("systemctl", "enable", "bakeryd")
	by := func(name string) string { return "/run/bakery/" + name + ".sock" }
	b.run("bakeryctl", "--socket", by("slow"), "create", "reboot", "--permits", "2")
	other := b.start("bakeryctl", "--socket", by("slow"), "lock", "reboot", "--", "sh", "-c", "echo rebooting; exec sleep infinity")
	other.says("rebooting")
	a.run("systemctl", "start", "--no-block", "reboot-in-turn.service")
	eventually(t, "a has a permit", func() bool { return slices.Contains(b.holders(by("slow"), "reboot"), a.id) })
	began := time.Now()
	third := b.start("bakeryctl", "--socket", by("third"), "lock", "reboot", "--", "echo", "third")
	a.bootedWithin(bootPatience, 2)
	t.Logf("measured: a is back after %v", time.Since(began).Round(time.Second))
	third.exits(0)
	took := third.end().Sub(began)
	t.Logf("measured: the third has a permit after %v", took.Round(100*time.Millisecond))
	require.Greater(t, took, slowLease-slowLease/6, "the permit of the host that reboots was free before its lease was over")
	require.True(t, other.runs())
	other.signal(syscall.SIGTERM)

	// Enabled units start by themselves when their disk appears.
	a.setUp()
	a.active("bakeryd", "active")
	require.NotContains(t, a.run("journalctl", "-b", "--no-pager", "_PID=1"), "ordering cycle")
	eventually(t, "a waits for the service, or has it", func() bool { return strings.Contains(a.show("bakery-lock@web.service", "StatusText"), " web") })
}
