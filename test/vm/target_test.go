//go:build vm

package vm

import (
	"fmt"
	"math/bits"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	targetName = "iqn.2020-01.invalid.vm:disks"
	initiators = "iqn.2020-01.invalid.vm"
)

// target has SCSI disks with persistent reservations, served by tgt over iSCSI. When it ends it
// forgets the reservations and registrations: it has no persistence through power loss.
type target struct {
	t      *testing.T
	portal string
	tid    int64    // tgt makes the identifiers of its units from it
	images []string // by logical unit, from 1
	run    string
	tgtd   *exec.Cmd // nil while it does not run
}

// tgt returns the directory of tgt's programs. The package is not installed, because it would start
// a service.
var tgt = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(base, "tgt")
	return filepath.Join(dir, "usr/sbin"), unpack("tgt", dir, "./usr/sbin/*")
})

var tids atomic.Int64

// serve serves images as a target, until the end of the test.
func serve(t *testing.T, images ...string) *target {
	t.Helper()
	s := &target{t: t, portal: freePort(t), tid: tids.Add(1), images: images, run: directory(t)}
	s.start()
	t.Cleanup(func() {
		s.stop()
		if b, err := os.ReadFile(s.log()); t.Failed() {
			t.Logf("tgtd: %s (%v)", b, err)
		}
	})
	return s
}

func (s *target) log() string { return filepath.Join(s.run, "log") }

func (s *target) start() {
	s.t.Helper()
	dir, err := tgt()
	require.NoError(s.t, err)
	log, err := os.OpenFile(s.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(s.t, err)
	defer log.Close()
	s.tgtd = exec.Command(filepath.Join(dir, "tgtd"), "-f", "-C", "1", "--iscsi", "portal="+s.portal)
	s.tgtd.Env, s.tgtd.Stdout, s.tgtd.Stderr = s.env(), log, log
	s.tgtd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(s.t, s.tgtd.Start())
	eventually(s.t, "tgtd serves", func() bool { _, err := s.admin("--op show --mode target"); return err == nil })
	steps := []string{"--op new --mode target -T " + targetName}
	for i, image := range s.images {
		steps = append(steps, fmt.Sprintf("--op new --mode logicalunit --lun %d -b %s", i+1, image))
	}
	for _, args := range append(steps, "--op bind --mode target -I ALL") {
		args = fmt.Sprint(args, " --tid ", s.tid)
		out, err := s.admin(args)
		require.NoError(s.t, err, "tgtadm %s: %s", args, out)
	}
}

func (s *target) env() []string {
	return append(os.Environ(), "TGT_IPC_SOCKET="+filepath.Join(s.run, "s"))
}

// admin runs tgtadm.
func (s *target) admin(args string) (out string, err error) {
	s.t.Helper()
	dir, err := tgt()
	require.NoError(s.t, err)
	cmd := exec.Command(filepath.Join(dir, "tgtadm"), append([]string{"-C", "1", "--lld", "iscsi"}, strings.Fields(args)...)...)
	cmd.Env = s.env()
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// physical sets the size of the physical sectors of all units, until tgtd restarts. Logical ones
// have 512 bytes.
func (s *target) physical(size int) {
	s.t.Helper()
	for i := range s.images {
		out, err := s.admin(fmt.Sprintf("--op update --mode logicalunit --tid %d --lun %d --params lbppbe=%d", s.tid, i+1, bits.Len(uint(size/512))-1))
		require.NoError(s.t, err, out)
	}
}

// stop ends tgtd as a crash does.
func (s *target) stop() {
	if s.tgtd == nil {
		return
	}
	_ = s.tgtd.Process.Kill()
	_ = s.tgtd.Wait()
	s.tgtd = nil
}

// serveByKernel serves images as the kernel's own target, in a machine: unlike tgt it can abort writes. It
// does not restart.
func serveByKernel(t *testing.T, images ...string) *target {
	t.Helper()
	s := &target{t: t, portal: freePort(t), images: images}
	devices := []string{"-netdev", "user,id=net,restrict=on,hostfwd=tcp:" + s.portal + "-:3260", "-device", "virtio-net-pci,netdev=net"}
	script := `
		modprobe -a virtio_net crc32c_generic target_core_iblock iscsi_target_mod
		ip address add 10.0.2.15/24 dev eth0
		ip link set eth0 up
		mkdir -p /var/target/pr
		mount -t configfs configfs /sys/kernel/config
		cd /sys/kernel/config/target
		portals=iscsi/` + targetName + `/tpgt_1
		mkdir -p $portals/np/0.0.0.0:3260
		echo 0 >$portals/attrib/authentication
		echo 1 >$portals/attrib/generate_node_acls
		echo 1 >$portals/attrib/cache_dynamic_acls
		echo 0 >$portals/attrib/demo_mode_write_protect
		unit() {
			until test -b /dev/disk$1; do
				for disk in /sys/block/vd*; do
					test "$(cat "$disk/serial")" != disk$1 || ln -s "${disk##*/}" /dev/disk$1
				done
				sleep 0.1
			done
			core=core/iblock_0/disk$1
			mkdir -p $core $portals/lun/lun_$1
			echo udev_path=/dev/disk$1 >$core/control
			echo disk$1 >$core/wwn/vpd_unit_serial
			echo 1 >$core/enable
			ln -s $PWD/$core $portals/lun/lun_$1/disk
		}
`
	for i, image := range images {
		devices = append(devices, "-drive", fmt.Sprintf("if=none,id=disk%d,format=raw,cache=none,file.locking=off,file=%s", i+1, image),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=disk%d,serial=disk%d", i+1, i+1))
		script += fmt.Sprintf("unit %d\n", i+1)
	}
	m := boot(t, "target", devices...)
	m.sh(script + "echo 1 >$portals/enable")
	return s
}

// unit returns one of its logical units, without a cable.
func (s *target) unit(lun int) unit { return unit{s.portal, lun} }

// freePort returns an address on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// The target crashes and is back within the lease: no section is affected. When it is away for
// longer, all sections are stopped, and all hosts join again by themselves when it is back.
func TestTargetRestarted(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{hosts: 3, lease: 2 * usual})
	a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
	b.work()
	d.work()
	c.progress(1, b, d)
	section, token := a.enter()
	began := time.Now()
	c.target.stop()
	time.Sleep(time.Second) // the outage
	c.target.start()
	// The holder renews its lease: the disk is back for it.
	before := c.sequence(a)
	eventually(t, "the lease is renewed", func() bool { return c.sequence(a) > before+1 || !section.runs() })
	require.True(t, section.runs(), "the section was stopped")
	c.measured("the target was gone for a second; the lease of %v was renewed twice within %v", c.times.Lease, time.Since(began).Round(10*time.Millisecond))
	require.Equal(t, token, c.counter().Token)
	section.letGo()
	c.progress(2, b, d)

	section, token = a.enter("--stubborn")
	c.target.stop()
	section.exits(75)
	for _, h := range c.hosts {
		eventually(t, h.name+" has lost its lease", func() bool { return strings.Contains(h.bakeryd.said(), "lease lost") })
	}
	c.target.start()
	for _, h := range c.hosts {
		eventually(t, h.name+" has joined again", func() bool { return h.joined() >= 2 })
	}
	a.work()
	c.progress(2, a, b, d)
	rest(a, b, d)
	c.whole(token)
}

// A target restarts and forgets all registrations under running hosts: they notice when a host is
// to be fenced. The fencing host then finds that its own registration is gone. It gives up its
// lease, registers again and, with a reservation in force, fences the dead host.
func TestTargetForgotAndFenced(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{fence: true})
	a, b := c.hosts[0], c.hosts[1]
	late, token := a.enter("--stubborn")
	b.work()
	c.target.stop()
	c.target.start()
	for _, h := range c.hosts {
		before := c.sequence(h)
		eventually(t, h.name+" renews its lease", func() bool { return c.sequence(h) > before+1 })
	}
	if a.joined()+b.joined() > 2 {
		t.Log("hosts have joined again by themselves")
	}
	require.Equal(t, token, c.counter().Token, "the section continues")
	began, next := time.Now(), c.entered(token)
	a.pause()
	c.othersWaited(next(), began, 0)
	c.progress(2, b)
	late.input("\n")
	a.resume()
	late.says("refused: write the counter: ")
	late.says(conflict)
	late.over()
	c.afterwards()
	c.whole(token)
}
