//go:build libvirt

package libvirt

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
)

// domain is a virtual machine that both hosts may run.
type domain struct {
	name      string
	disk      string // name of the domain whose disk it uses; "" is its own
	onFailure string // what libvirt does when its lock manager loses the lease; "" is the default
	shared    bool   // others may use its disk at the same time
}

func (d domain) xml(dir string) []byte {
	action, shared := "", ""
	if d.onFailure != "" {
		action = "<on_lockfailure>" + d.onFailure + "</on_lockfailure>"
	}
	if d.shared {
		shared = "<shareable/>"
	}
	return fmt.Appendf(nil, `<domain type='qemu'>
  <name>%s</name>
  <uuid>00000000-0000-4000-8000-%x</uuid>
  <memory unit='MiB'>32</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/></features>
  %s
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='%s'/><target dev='vda' bus='virtio'/>%s</disk>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
`, d.name, fmt.Sprintf("%-6.6s", d.name), action, filepath.Join(dir, cmp.Or(d.disk, d.name)+".img"), shared)
}

// outcome is the result of a command of virsh.
type outcome struct {
	h    *host
	argv []string
	out  string
	err  error
}

func (h *host) virsh(argv ...string) outcome {
	out, err := h.output(append([]string{"virsh", "-q"}, argv...)...)
	return outcome{h, argv, out, err}
}

func (o outcome) ok() {
	o.h.t.Helper()
	require.NoError(o.h.t, o.err, "host %d: virsh %s\n%s", o.h.id, strings.Join(o.argv, " "), o.out)
}

// busy is what the plug-in says of a lease that another host has.
const busy = "resource busy: Failed to acquire lock: Lease is held by another host"

func (o outcome) refused() {
	o.h.t.Helper()
	require.Error(o.h.t, o.err, "host %d: virsh %s\n%s", o.h.id, strings.Join(o.argv, " "), o.out)
	require.Contains(o.h.t, o.out, busy)
}

// state returns the state of a domain, such as running, paused or shut off.
func (h *host) state(name string) string {
	h.t.Helper()
	o := h.virsh("domstate", name)
	o.ok()
	return o.out
}

// pid returns the process of a domain, as the host numbers it.
func (h *host) pid(name string) string {
	h.t.Helper()
	return h.shell("cat /run/libvirt/qemu/" + name + ".pid")
}

// ended reports whether a process of the host has ended.
func (h *host) ended(pid string) bool {
	h.t.Helper()
	stat := h.shell("ps -o stat= -p " + pid + " || true")
	return stat == "" || strings.HasPrefix(stat, "Z")
}
