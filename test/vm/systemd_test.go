//go:build vm

package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bootPatience bounds the boot of a machine with systemd: dozens of programs, on an emulated
// processor.
const bootPatience = 8 * time.Minute

// debian is the image of a root filesystem with Debian's systemd, lvm2 and sanlock, the project's
// programs and its units, and their dependencies. The packages are unpacked, not installed.
var debian = sync.OnceValues(func() (image string, err error) {
	dir := filepath.Join(base, "debian")
	root := filepath.Join(dir, "root")
	archives := filepath.Join(dir, "archives")
	for _, d := range []string{root + "/usr/bin", root + "/usr/sbin", root + "/usr/lib", root + "/usr/lib64", archives + "/partial"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			return "", err
		}
	}
	// With an empty list of installed packages apt gets all dependencies.
	get := func() error {
		return execute(dir, "apt-get", "install", "-qq", "-y", "--no-install-recommends", "--download-only",
			"-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache::archives="+archives, "-o", "APT::Sandbox::User=root",
			"systemd", "systemd-sysv", "udev", "bash", "dash", "coreutils", "util-linux", "mount", "e2fsprogs", "procps", "grep", "sed",
			"lvm2", "lvm2-lockd", "sanlock")
	}
	if err := get(); err != nil { // the package lists may be out of date
		if err := execute(dir, "apt-get", "update", "-qq"); err != nil {
			return "", err
		}
		if err := get(); err != nil {
			return "", err
		}
	}
	if err := execute(dir, "sh", "-ec", `for deb in "$1"/*.deb; do
			dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$2"
		done
		cd "$2"; rm -rf usr/share/doc usr/share/man usr/share/locale usr/share/info usr/share/zoneinfo usr/lib/udev/hwdb.d
		ldconfig -r .`, "sh", archives, root); err != nil {
		return "", err
	}
	if err := furnish(root); err != nil {
		return "", err
	}
	image = filepath.Join(dir, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return "", err
	}
	if err := os.Truncate(image, 512<<20); err != nil {
		return "", err
	}
	if err := execute(dir, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", root, image); err != nil {
		return "", err
	}
	return image, os.RemoveAll(root)
})

// ownFiles are files that are not in Debian's packages, by path. The examples run these programs;
// each records that it ran.
var ownFiles = map[string]string{
	"etc/passwd": "root:x:0:0::/root:/bin/sh\njoe:x:1000:1000::/tmp:/bin/sh\nsanlock:x:107:107::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n",
	"etc/shadow": "root:*::0:::::\njoe:*::0:::::\n",
	"etc/group": "root:x:0:\nadm:x:4:\ntty:x:5:\ndisk:x:6:sanlock\nlp:x:7:\nkmem:x:15:\ndialout:x:20:\ncdrom:x:24:\ntape:x:26:\n" +
		"audio:x:29:\nutmp:x:43:\nvideo:x:44:\ninput:x:101:\nsgx:x:102:\nkvm:x:103:\nrender:x:104:\nsystemd-journal:x:106:\n" +
		"bakery:x:105:joe\nsanlock:x:107:\njoe:x:1000:\nnogroup:x:65534:\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\n",
	"etc/os-release":    "ID=debian\nNAME=lab\n",
	"etc/fstab":         "",
	"etc/systemd/system/lab.service": "[Unit]\nAfter=basic.target\n[Service]\nExecStart=/usr/local/bin/guest\nOOMScoreAdjust=-1000\n" +
		"StandardOutput=tty\nTTYPath=/dev/console\n",
	"etc/systemd/journald.conf": "[Journal]\nStorage=volatile\nForwardToConsole=yes\nMaxLevelConsole=info\n",
	"etc/systemd/system.conf":   "[Manager]\nShowStatus=no\nDefaultTimeoutStartSec=5min\nDefaultDeviceTimeoutSec=5min\n",
	"usr/local/bin/web":         "#!/bin/sh\necho \"web runs on $(uname -n)\"\nexec sleep infinity\n",
	"usr/local/bin/nightly":     "#!/bin/sh\necho \"nightly runs on $(uname -n)\"\nsleep 2\n",
	"usr/local/bin/stubborn":    stubborn,
	"usr/local/bin/kill-vg":     killVG,
	// Variants without logind and PAM.
	"etc/systemd/system/user-runtime-dir@.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=install -d -o %i /run/user/%i\n",
	"etc/systemd/system/user@.service.d/lab.conf":  "[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/%i\n",
}

// unwanted are units of systemd that only cost time here.
var unwanted = []string{"getty.target", "serial-getty@ttyS0.service", "systemd-logind.service", "systemd-networkd.service",
	"systemd-resolved.service", "systemd-hwdb-update.service", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
	"systemd-sysusers.service", "systemd-firstboot.service", "e2scrub_reap.service", "e2scrub_all.timer", "fstrim.timer",
	"systemd-remount-fs.service", "systemd-pstore.service", "systemd-binfmt.service"}

// furnish installs the units, unchanged, and the programs at the paths in them.
func furnish(root string) error {
	for _, dir := range []string{"dev", "proc", "sys", "run", "tmp", "srv/data", "etc/bakery", "var/lib", "var/tmp", "root"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	put := func(name string, content []byte) error {
		path, mode := filepath.Join(root, name), fs.FileMode(0o644)
		if strings.Contains(name, "/bin/") {
			mode = 0o755
		}
		_ = os.Remove(path) // may be a link
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, mode))
	}
	for name, text := range ownFiles {
		if err := put(name, []byte(text)); err != nil {
			return err
		}
	}
	links := map[string]string{"usr/bin/sh": "dash", "var/run": "/run",
		"etc/systemd/system/multi-user.target.wants/lab.service": "../lab.service",
		"etc/systemd/system/default.target":                      "/lib/systemd/system/multi-user.target"}
	for _, unit := range unwanted {
		links["etc/systemd/system/"+unit] = "/dev/null"
	}
	for name, to := range links {
		path := filepath.Join(root, name)
		_ = os.Remove(path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(to, path)); err != nil {
			return err
		}
	}
	copies := map[string]string{"usr/local/bin/guest": filepath.Join(base, "root/init")}
	for _, program := range []string{"bakeryd", "bakeryctl", "bakeryctl-full"} {
		copies["usr/bin/"+program] = filepath.Join(base, "root/bin", program)
	}
	for pattern, to := range map[string]string{"*.service": "usr/lib/systemd/system/", "*.conf": "usr/share/bakeryd/", "examples/*": "etc/systemd/system/"} {
		units, err := filepath.Glob("../../packaging/systemd/" + pattern)
		if err != nil || len(units) == 0 {
			return fmt.Errorf("no units in packaging/systemd/%s (%v)", pattern, err)
		}
		for _, unit := range units {
			copies[to+filepath.Base(unit)] = unit
		}
	}
	for to, from := range copies {
		b, err := os.ReadFile(from)
		if err == nil {
			err = put(to, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// systemd is the kind of machine that boots from that image. The template writes its changes to the
// image, because its snapshot depends on them. The changes of every other machine are lost when
// qemu ends.
var systemd = &kind{
	name:  "systemd",
	words: []string{"vm.root=/dev/vda", "systemd.show_status=no"},
	devices: func(t *testing.T, name string) []string {
		image, err := debian()
		require.NoError(t, err)
		changes := "on"
		if name == Template {
			changes = "off"
		}
		return []string{"-drive", "if=none,id=root,format=raw,cache=unsafe,file=" + image + ",snapshot=" + changes,
			"-device", "virtio-blk-pci,drive=root"}
	},
}

// active waits until a unit is in one of some states, and returns the state.
func (m *machine) active(unit string, states ...string) (state string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%s on %s is %v", unit, m.name, states), func() bool {
		state = m.show(unit, "ActiveState")
		for _, s := range states {
			if s == state {
				return true
			}
		}
		return false
	})
	return state
}

// show returns a property of a unit.
func (m *machine) show(unit, property string) string {
	m.t.Helper()
	return strings.TrimSpace(m.run("systemctl", "show", "--value", "-p", property, unit))
}

// journal returns the log of a unit in this boot.
func (m *machine) journal(unit string) string {
	m.t.Helper()
	return m.run("journalctl", "-b", "--no-pager", "-o", "short-monotonic", "-u", unit)
}
