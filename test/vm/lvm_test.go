//go:build vm

package vm

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
)

// lvmDisks are the sizes of the disks in megabytes, by which the machines find them.
var lvmDisks = map[string]int64{"locks": 16, "pv": 1536}

// lvmLease is the lease of the lockspace of bakeryd. sanlock has its own, of 80 s.
const lvmLease = 30 * time.Second

// lockManager is a lock manager that serves the socket of sanlock.
type lockManager struct {
	name  string
	start func(h *lvmHost)
	path  func(h *lvmHost) *cable // to the disk with the host's lease
	times timing.Times            // of its lockspace; zero if they are not checked
}

var bySanlock = lockManager{
	name:  "sanlock",
	start: func(h *lvmHost) { h.run("systemctl", "start", "sanlock") },
	path:  func(h *lvmHost) *cable { return h.pv },
}

var byBakeryd = lockManager{
	name: "bakeryd",
	start: func(h *lvmHost) {
		h.sh(fmt.Sprintf(`mkdir /etc/systemd/system/bakeryd.service.d
			ln -s /usr/share/bakeryd/sanlock.conf /etc/systemd/system/bakeryd.service.d/
			printf 'BAKERYD_DEVICE=/dev/locks\nBAKERYD_HOST_ID=%d\n' >/etc/bakery/bakeryd.env
			systemctl daemon-reload
			systemctl start bakeryd`, h.id))
	},
	path:  func(h *lvmHost) *cable { return h.locks },
	times: timing.Times{Lease: lvmLease},
}

// least returns for how long the locks of a dead host are not free at least: see othersWaited.
func (by lockManager) least() time.Duration {
	if by.times.Lease == 0 {
		return 0
	}
	return by.times.Silence(0)*9/10 - by.times.Alive()
}

// adopt is a drop-in of lvmlockd.service: lvmlockd writes its lockspaces to a file, and continues
// with the locks of its previous process.
const adopt = `[Service]
ExecStart=
ExecStart=/sbin/lvmlockd --foreground --adopt 1
`

// killVG is lvmlockctl_kill_command of lvm.conf: it makes the LVs of a VG fail all requests.
const killVG = `#!/bin/sh
for lv in $(dmsetup ls --target linear | cut -f 1); do
	case $lv in
	"$1"-lvmlock) ;;
	"$1"-*) dmsetup wipe_table --force --noflush --nolockfs "$lv" || exit ;;
	esac
done
cut -d ' ' -f 1 /proc/uptime >/run/killed
`

// lvmHost is a machine with Debian's lvm2, lvmlockd and a lock manager.
type lvmHost struct {
	*machine
	id        int
	locks, pv *cable
}

// shareVG boots the machines a and b, which share a PV and the disk of a lockspace. a makes the VG
// "vg", and both start its locks. sectors is the size of the physical sectors of the disks, on
// which the layout of lvm's leases depends.
func shareVG(t *testing.T, by lockManager, sectors int) (a, b *lvmHost) {
	t.Helper()
	locks, pv := image(t, "locks", lvmDisks["locks"]), image(t, "pv", lvmDisks["pv"])
	format(t, locks, "--lease", max(by.times.Lease, lvmLease).String(), "--locks", "64")
	s := serve(t, locks, pv)
	s.physical(sectors)
	var hosts []*lvmHost
	for i, name := range []string{"a", "b"} {
		h := &lvmHost{id: i + 1, locks: lay(t, s.portal), pv: lay(t, s.portal)}
		h.machine = systemd.start(t, name, scsi(name, unit{h.locks.address(), 1}, unit{h.pv.address(), 2})...)
		hosts = append(hosts, h)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, h := range hosts {
				h.explain()
			}
		}
	})
	for _, h := range hosts {
		h.bootedWithin(bootPatience, 1)
		h.nameDisks(lvmDisks)
		h.sh(fmt.Sprintf(`mkdir /etc/systemd/system/lvmlockd.service.d
			printf '%s' >/etc/systemd/system/lvmlockd.service.d/adopt.conf
			systemctl daemon-reload
			configure() { # FILE NAME VALUE replaces a comment
				sed -i -E "s,^(\s*)# $2 = .*,\1$2 = $3," /etc/lvm/$1
				grep -q "^\s*$2 = $3\$" /etc/lvm/$1
			}
			configure lvm.conf use_lvmlockd 1
			configure lvm.conf lvmlockctl_kill_command '"/usr/local/bin/kill-vg"'
			configure lvmlocal.conf host_id %d`, adopt, h.id))
		by.start(h)
		h.run("systemctl", "start", "lvmlockd")
	}
	a, b = hosts[0], hosts[1]
	began := time.Now()
	a.sh("vgcreate --shared vg $(readlink -f /dev/pv)")
	made := time.Now()
	b.run("vgchange", "--lockstart", "vg")
	t.Logf("measured: %s: vgcreate --shared takes %.1f s, vgchange --lockstart on another host %.1f s", by.name,
		made.Sub(began).Seconds(), time.Since(made).Seconds())
	return a, b
}

// explain prints the logs after a failure, if the machine still answers.
func (h *lvmHost) explain() {
	select {
	case <-h.gone:
		return
	default:
	}
	c := h.start("sh", "-c", `sanlock client status -D; lvmlockctl -i; dmsetup table; lvmlockctl -d | tail -n 300
		journalctl -b -n 200 --no-pager -o short-monotonic; cat /var/log/sanlock.log`)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && c.runs(); {
		time.Sleep(50 * time.Millisecond)
	}
	h.t.Logf("%s: %s", h.name, c.said())
}

// ends waits for the end of a program and all of its output.
func (c *command) ends() (code int, said string) {
	c.m.t.Helper()
	eventuallyWithin(c.m.t, 2*patience, fmt.Sprintf("%q in %s ends", c.argv, c.m.name), func() bool {
		return c.is(func() bool { return c.ended && c.silent })
	})
	return c.code, c.said()
}

const lockedByOther = "LV locked by other host: "

// refused runs a command of lvm that must be refused with a text.
func (h *lvmHost) refused(text string, argv ...string) {
	h.t.Helper()
	code, said := h.start(argv...).ends()
	require.Contains(h.t, said, text, "%q on %s", argv, h.name)
	if argv[0] != "vgrename" { // it exits with 0 then, too
		require.NotZero(h.t, code, "%q on %s", argv, h.name)
	}
}

// excluded checks that a host cannot activate LVs while another has them active.
func (h *lvmHost) excluded(lvs ...string) {
	h.t.Helper()
	for _, lv := range lvs {
		h.refused(lockedByOther+lv, "lvchange", "-aey", lv)
	}
}

// retried retries a command of lvm each second until it succeeds. Until then it must be refused
// with a text.
func (h *lvmHost) retried(text string, argv ...string) (said string) {
	h.t.Helper()
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(time.Second) {
		code, said := h.start(argv...).ends()
		if code == 0 && !strings.Contains(said, text) {
			return said
		}
		require.Contains(h.t, said, text, "%q on %s", argv, h.name)
		require.True(h.t, time.Now().Before(deadline), "%q on %s is still refused", argv, h.name)
	}
}

// activate gives the host an LV exclusively.
func (h *lvmHost) activate(lv string) { h.t.Helper(); h.run("lvchange", "-aey", lv) }

// share gives the host an LV that other hosts can have as well.
func (h *lvmHost) share(lv string) { h.t.Helper(); h.run("lvchange", "-asy", lv) }

func (h *lvmHost) deactivate(lv string) { h.t.Helper(); h.run("lvchange", "-an", lv) }

// create makes an LV that is active on this host.
func (h *lvmHost) create(lv string) {
	h.t.Helper()
	vg, name, _ := strings.Cut(lv, "/")
	h.run("lvcreate", "-aey", "-L", "8m", "-n", name, vg)
}

// uuid returns the id of an LV, which is the name of its lock.
func (h *lvmHost) uuid(lv string) string {
	h.t.Helper()
	return strings.TrimSpace(h.run("lvs", "--noheadings", "-o", "lv_uuid", lv))
}

// shows checks that sanlock client status shows the lockspace of vg, and which LVs lvmlockd has
// exclusively, and shared.
func (h *lvmHost) shows(exclusive, shared []string) {
	h.t.Helper()
	said := h.run("sanlock", "client", "status")
	pid := h.show("lvmlockd", "MainPID")
	require.Regexp(h.t, `(?m)^p `+pid+` lvmlockd$`, said)
	require.Regexp(h.t, fmt.Sprintf(`(?m)^s lvm_vg:%d:/dev/mapper/vg-lvmlock:0$`, h.id), said)
	has := func(lv, version string) {
		h.t.Helper()
		require.Regexp(h.t, `(?m)^r lvm_vg:`+h.uuid(lv)+`:/dev/mapper/vg-lvmlock:\d+:`+version+` p `+pid+`$`, said)
	}
	for _, lv := range exclusive {
		has(lv, `\d+`)
	}
	for _, lv := range shared {
		has(lv, `SH`)
	}
	require.Len(h.t, regexp.MustCompile(`(?m)^r `).FindAllString(said, -1), len(exclusive)+len(shared), said)
}
