//go:build vm

package vm

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Debian's lvm2 and lvmlockd, unmodified, share a VG by locks of bakeryd. Each LV is active on one
// host, or shared.
func TestLvmShared(t *testing.T) { t.Parallel(); lvmShared(t, byBakeryd) }

// lvm-shared with sanlock instead of bakeryd, for comparison.
func TestLvmSharedBySanlock(t *testing.T) { t.Parallel(); lvmShared(t, bySanlock) }

func lvmShared(t *testing.T, by lockManager) {
	a, b := shareVG(t, by, 4096)
	a.create("vg/logs")
	a.run("lvcreate", "-an", "-L", "8m", "-n", "data", "vg")
	first, second := a.start("lvchange", "-aey", "vg/data"), b.start("lvchange", "-aey", "vg/data")
	winner, loser := a, b
	if code, said := first.ends(); code != 0 {
		require.Contains(t, said, lockedByOther+"vg/data")
		winner, loser = b, a
	}
	code, said := second.ends()
	require.Equal(t, winner == b, code == 0, "both or no host has activated vg/data; b: %s", said)
	loser.excluded("vg/data")
	loser.refused(lockedByOther+"vg/data", "lvchange", "-asy", "vg/data")
	loser.refused(lockedByOther+"vg/data", "lvextend", "-L", "+8m", "vg/data")
	loser.refused(lockedByOther+"vg/data", "lvremove", "-y", "vg/data")
	winner.run("lvextend", "-L", "+8m", "vg/data")
	winner.deactivate("vg/data")
	loser.activate("vg/data")
	winner.excluded("vg/data")
	loser.deactivate("vg/data")

	a.share("vg/data")
	b.share("vg/data")
	a.shows([]string{"vg/logs"}, []string{"vg/data"})
	b.shows(nil, []string{"vg/data"})
	a.excluded("vg/data")
	b.refused("LV is already locked with incompatible mode: vg/data", "lvextend", "-L", "+8m", "vg/data")
	b.refused(lockedByOther+"vg/data", "lvremove", "-y", "vg/data")
	a.deactivate("vg/data")
	b.deactivate("vg/data")
	b.run("lvremove", "-y", "vg/data")
	a.run("lvremove", "-y", "vg/logs")
	b.shows(nil, nil)

	const started = `not stopped on other hosts`
	a.refused(started, "vgrename", "vg", "renamed")
	a.refused(started, "vgremove", "-y", "vg")
	b.run("vgchange", "--lockstop", "vg")
	require.Contains(t, a.retried(started, "vgrename", "vg", "renamed"), "successfully renamed")
	for _, h := range []*lvmHost{a, b} {
		h.run("vgchange", "--lockstart", "renamed")
	}
	b.create("renamed/data")
	a.excluded("renamed/data")
	b.run("lvremove", "-y", "renamed/data")
	b.run("vgchange", "--lockstop", "renamed")
	a.retried(started, "vgremove", "-y", "renamed")
	require.NotContains(t, a.run("sanlock", "client", "status"), "lvm_", "a lockspace or a resource is left")
}

// The host with an LV loses power: another host can activate it when lease and margin have passed.
func TestLvmPowerOff(t *testing.T) { t.Parallel(); lvmPowerOff(t, byBakeryd) }

// lvm-power-off with sanlock instead of bakeryd, for comparison.
func TestLvmPowerOffBySanlock(t *testing.T) { t.Parallel(); lvmPowerOff(t, bySanlock) }

func lvmPowerOff(t *testing.T, by lockManager) {
	a, b := shareVG(t, by, 512)
	a.create("vg/data")
	a.sh("echo of a | dd of=/dev/vg/data conv=fsync bs=512 count=1 status=none")
	b.excluded("vg/data")
	if by.name == byBakeryd.name {
		require.Equal(t, []int{a.id}, b.holders("/run/bakery/bakeryd.sock", "sanlock/lvm_vg/"+a.uuid("vg/data")))
	}
	began := time.Now()
	a.kill()
	b.retried(lockedByOther+"vg/data", "lvchange", "-aey", "vg/data")
	took := time.Since(began)
	t.Logf("measured: %s: another host has activated the LV %.1f s after a loss of power, not before %v", by.name, took.Seconds(), by.least())
	require.Greater(t, took, by.least())
	require.Equal(t, "of a", b.sh("head -c 4 /dev/vg/data"))
	b.shows([]string{"vg/data"}, nil)
	b.deactivate("vg/data")
}

// The disk of the lockspace hangs for the host with an LV: its killpath has made the LV fail when
// the lease ends, and only then another host can activate it. When the disk is back the host starts
// the locks of the VG again.
func TestLvmDiskHangs(t *testing.T) {
	t.Parallel()
	by := byBakeryd
	by.times.Lease *= 2 // a sixth of it is for the killpath, which must suffice on a busy machine
	a, b := shareVG(t, by, 4096)
	a.create("vg/data")
	b.excluded("vg/data")
	writer := a.start("sh", "-c", `while dd if=/dev/zero of=/dev/vg/data bs=4096 count=1 oflag=direct conv=notrunc status=none; do
		test -e /run/writes || { touch /run/writes; echo writes; }
	done
	echo "ended $(cut -d ' ' -f 1 /proc/uptime)."`)
	writer.says("writes")
	activated := lvmHangs(t, by, a, b)
	_, said := writer.ends()
	require.True(t, writer.end().Before(activated), "the LV could be written on both hosts")
	lost := seconds(t, `(?m)^\[ *([0-9.]+)\] .* msg="lease lost`, a.journal("bakeryd"))
	ended := seconds(t, `ended ([0-9.]+)\.\n`, said)
	dead := seconds(t, `(.*)\n`, a.run("cat", "/run/killed"))
	t.Logf("measured: the killpath was done %.1f s and the LV failed %.1f s before the end of the lease", lost-dead, lost-ended)
	require.Less(t, dead, lost)
	require.Less(t, ended, lost)
	lvmReturns(by, a, b)
}

// lvm-disk-hangs with sanlock instead of bakeryd, for comparison. Its lease is on the PV, which
// hangs.
func TestLvmDiskHangsBySanlock(t *testing.T) {
	t.Parallel()
	a, b := shareVG(t, bySanlock, 4096)
	a.create("vg/data")
	b.excluded("vg/data")
	lvmHangs(t, bySanlock, a, b)
	lvmReturns(bySanlock, a, b)
}

// lvmHangs makes the disk with the lease of a hang, and returns when b has activated vg/data.
func lvmHangs(t *testing.T, by lockManager, a, b *lvmHost) (activated time.Time) {
	t.Helper()
	began := time.Now()
	by.path(a).hold()
	b.retried(lockedByOther+"vg/data", "lvchange", "-aey", "vg/data")
	activated = time.Now()
	t.Logf("measured: %s: another host has activated the LV %.1f s after the disk hung", by.name, activated.Sub(began).Seconds())
	require.Greater(t, activated.Sub(began), by.least())
	require.Contains(t, a.run("dmsetup", "table", "vg-data"), "error", "the killpath did not run in time")
	return activated
}

// lvmReturns gives the disk back to a, which takes part again.
func lvmReturns(by lockManager, a, b *lvmHost) {
	a.t.Helper()
	by.path(a).restore()
	began := time.Now()
	eventually(a.t, "lvmlockd of a has left the lockspace", func() bool { return !strings.Contains(a.run("lvmlockctl", "-i"), "lvm_vg") })
	a.run("vgchange", "--lockstart", "vg")
	a.t.Logf("measured: %s: the locks of the VG are started again %.1f s after the disk is back", by.name, time.Since(began).Seconds())
	a.excluded("vg/data")
	b.deactivate("vg/data")
	a.run("dmsetup", "remove", "vg-data") // it still fails all requests
	a.activate("vg/data")
	a.shows([]string{"vg/data"}, nil)
}

// seconds returns the number that a pattern finds.
func seconds(t *testing.T, pattern, in string) float64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(in)
	require.NotNil(t, found, "%s in %s", pattern, in)
	n, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return n
}

// bakeryd is restarted, and then killed, under active LVs, then lvmlockd is: no lock is lost, and
// each can be released.
func TestLvmRestarts(t *testing.T) {
	t.Parallel()
	a, b := shareVG(t, byBakeryd, 4096)
	a.create("vg/data")
	a.create("vg/common")
	a.deactivate("vg/common")
	a.share("vg/common")
	b.share("vg/common")
	kept := func() {
		t.Helper()
		b.excluded("vg/data", "vg/common")
	}
	a.run("systemctl", "restart", "bakeryd")
	kept()
	a.run("systemctl", "kill", "-s", "KILL", "bakeryd")
	kept()
	eventually(t, "bakeryd has restarted", func() bool {
		return a.show("bakeryd", "NRestarts") == "1" && a.show("bakeryd", "ActiveState") == "active"
	})
	kept()
	a.shows([]string{"vg/data"}, []string{"vg/common"})
	a.deactivate("vg/data")
	b.activate("vg/data")
	a.excluded("vg/data")
	b.deactivate("vg/data")
	a.activate("vg/data")
	a.create("vg/late")

	a.run("systemctl", "kill", "-s", "KILL", "lvmlockd")
	kept()
	a.run("systemctl", "start", "lvmlockd")
	eventually(t, "lvmlockd has adopted the locks", func() bool {
		return strings.Count(a.run("lvmlockctl", "-i"), "LK LV ") == 3
	})
	kept()
	a.shows([]string{"vg/data", "vg/late"}, []string{"vg/common"})
	a.deactivate("vg/data")
	b.activate("vg/data")
	a.run("lvremove", "-y", "vg/late")
	a.deactivate("vg/common")
	b.deactivate("vg/common")
	b.activate("vg/common")
}

// bakeryd is killed, or stopped, for good under an active LV, which nothing else stops: its
// watchdog resets the host before another host can activate the LV.
func TestLvmBakerydStopped(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]string{"killed": "systemctl kill -s KILL bakeryd", "stopped": "systemctl stop bakeryd"} {
		t.Run(name, func(t *testing.T) {
			a, b := shareVG(t, byBakeryd, 4096)
			a.sh("echo BAKERYD_WATCHDOG=/dev/watchdog >>/etc/bakery/bakeryd.env; systemctl restart bakeryd")
			a.create("vg/data")
			a.sh(`mkdir -p /run/systemd/system/bakeryd.service.d
				printf '[Service]\nRestart=no\n' >/run/systemd/system/bakeryd.service.d/once.conf
				systemctl daemon-reload`)
			began := time.Now()
			a.start("sh", "-c", way)
			b.retried(lockedByOther+"vg/data", "lvchange", "-aey", "vg/data")
			activated := time.Now()
			struck := a.monitor.first(cards["software"].event, began)
			require.NotZero(t, struck, "the host was not reset before another host has the LV")
			t.Logf("measured: bakeryd %s: the host was reset %.1f s later, another host has activated the LV %.1f s later", name,
				struck.Sub(began).Seconds(), activated.Sub(began).Seconds())
		})
	}
}
