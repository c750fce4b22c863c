//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stubborn is a command that ignores SIGTERM. It starts a daemon that does the same and closes all
// descriptors. Both are named stubborn-NAME.
const stubborn = `#!/bin/bash
trap '' TERM HUP
(
	for fd in /proc/$BASHPID/fd/*; do
		fd=${fd##*/}
		[ "$fd" -le 2 ] || exec {fd}>&-
	done
	exec -a "stubborn-$1" setsid -f bash -c 'exec -a "$0" sleep infinity' "stubborn-$1" </dev/null >/dev/null 2>&1
)
exec -a "stubborn-$1" sleep infinity
`

// stubbornOf returns the stubborn processes whose name matches.
func (h *unitHost) stubbornOf(name string) []string {
	h.t.Helper()
	return strings.Fields(h.sh("pgrep -f '^stubborn-" + name + " infinity' || true"))
}

var commandGroup = regexp.MustCompile(`^0::(/\S*/(held-[\w-]+\.(?:service|scope))/bakeryctl-(\d+)-\d+-\d+-[0-9a-f]{8})\n$`)

// contained waits until the stubborn command of a unit runs under the lock of the same name. It
// checks that all its processes are in one cgroup below the unit's, and returns that and
// bakeryctl's pid.
func (h *unitHost) contained(name string) (group, wrapper string) {
	h.t.Helper()
	eventually(h.t, "both processes of "+name, func() bool { return len(h.stubbornOf(name)) == 2 })
	for _, pid := range h.stubbornOf(name) {
		text := h.run("cat", "/proc/"+pid+"/cgroup")
		found := commandGroup.FindStringSubmatch(text)
		require.NotNil(h.t, found, "cgroup of process %s of %s: %s", pid, name, text)
		require.Equal(h.t, "held-"+name, strings.TrimSuffix(found[2], path.Ext(found[2])))
		require.Contains(h.t, []string{"", found[1]}, group)
		group, wrapper = found[1], found[3]
	}
	require.Equal(h.t, []string{"cgroup"}, h.containments(name))
	return group, wrapper
}

// containments returns the containment of each command that holds a lock on this host.
func (h *unitHost) containments(lock string) (found []string) {
	h.t.Helper()
	var status struct {
		Locks []struct {
			Name    string
			Holders []struct {
				Host        int
				Containment string
			}
		}
	}
	require.NoError(h.t, json.Unmarshal([]byte(h.run("bakeryctl", "status", "--json")), &status))
	for _, l := range status.Locks {
		for _, x := range l.Holders {
			if l.Name == lock && x.Host == h.id {
				found = append(found, x.Containment)
			}
		}
	}
	return found
}

// gone checks that no process of a stubborn command is left, and that another host gets its lock.
func (h *unitHost) gone(name, group string, other *unitHost) {
	h.t.Helper()
	require.Empty(h.t, h.stubbornOf(name), "processes of %s", name)
	require.Equal(h.t, "works\n", other.run("bakeryctl", "lock", "-w", "1m", name, "--", "echo", "works"))
	eventually(h.t, "the cgroup of "+name+" is removed", func() bool {
		return h.sh("test ! -e /sys/fs/cgroup"+group+" || echo there") == ""
	})
}

// stoppedByUnit stops units that run a command under a lock. systemd shows the command's cgroup
// below the unit, and no process is left.
func stoppedByUnit(t *testing.T, a, b *unitHost) {
	for mode, user := range map[string]string{"control-group": "root", "mixed": "joe"} {
		unit := "held-" + mode
		a.run("systemd-run", "--unit="+unit, "-p", "KillMode="+mode, "-p", "TimeoutStopSec=3", "--uid="+user,
			"bakeryctl", "lock", mode, "--", "stubborn", mode)
		group, _ := a.contained(mode)
		for _, view := range []string{
			a.run("systemctl", "status", "--no-pager", unit),
			a.run("systemd-cgls", "--no-pager", "-u", unit+".service"),
		} {
			require.Contains(t, view, path.Base(group))
			require.Equal(t, 2, strings.Count(view, "stubborn-"+mode+" infinity"), view)
		}
		a.run("systemctl", "stop", unit)
		a.gone(mode, group, b)
	}
}

// killedByGroup kills bakeryctl in units of several kinds, and makes another host evict this one.
// The sandboxed bakeryd kills the rest by the cgroup.
func killedByGroup(t *testing.T, a, b *unitHost) {
	a.run("systemctl", "start", "user@1000")
	type unit struct {
		start string // systemd-run with flags
		owner string // of the cgroup: root if created by bakeryd, or by bakeryctl as root
		group string
	}
	const asJoe = "runuser -u joe -- env XDG_RUNTIME_DIR=/run/user/1000 "
	units := map[string]*unit{
		"root":      {start: "systemd-run -p KillMode=process", owner: "root"},
		"user":      {start: "systemd-run -p KillMode=process --uid=joe", owner: "root"},
		"scope":     {start: "systemd-run --scope --uid=joe --gid=bakery", owner: "root"},
		"delegated": {start: "systemd-run -p KillMode=process --uid=joe -p Delegate=yes", owner: "joe"},
		"manager":   {start: asJoe + "systemd-run --user -p KillMode=process", owner: "joe"},
	}
	for name, u := range units {
		a.start("sh", "-c", fmt.Sprintf("exec %s --unit=held-%s bakeryctl lock %[2]s -- stubborn %[2]s", u.start, name))
		var wrapper string
		u.group, wrapper = a.contained(name)
		require.Equal(t, u.owner+" 755\n", a.run("stat", "-c", "%U %a", "/sys/fs/cgroup"+u.group), name)
		a.run("kill", "-KILL", wrapper)
	}
	a.run("systemctl", "restart", "bakeryd") // the next process finds the cgroups in the state file
	for name := range units {
		require.Equal(t, []string{"cgroup"}, a.containments(name))
		require.Len(t, a.stubbornOf(name), 2, name)
	}
	began := time.Now()
	b.run("bakeryctl", "evict", fmt.Sprint(a.id), "--yes")
	eventually(t, "all commands are stopped", func() bool { return len(a.stubbornOf(".*")) == 0 })
	t.Logf("measured: all holders stopped after %v", time.Since(began).Round(100*time.Millisecond))
	for name, u := range units {
		a.gone(name, u.group, b)
	}
	for line := range strings.Lines(a.journal("bakeryd")) {
		require.NotContains(t, line, "permission denied")
		require.NotContains(t, line, "read-only file system")
		if strings.Contains(line, "stopping commands") {
			require.Contains(t, line, "containment=cgroup")
		}
	}
	a.run("systemctl", "start", "bakeryd")
}
