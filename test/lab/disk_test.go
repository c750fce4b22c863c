//go:build lab

package lab

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// image makes an empty disk of 16 MB.
func image(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(directory(t), "disk")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 16<<20))
	return path
}

// plain is an image as /dev/vda of a machine, and of any number of them.
func plain(image string) []string {
	return []string{"-drive", "if=none,id=vda,format=raw,cache=none,file.locking=off,file=" + image, "-device", "virtio-blk-pci,drive=vda"}
}

// target is a SCSI disk with persistent reservations, served by tgt over iSCSI.
type target struct {
	portal string
	name   string
}

// tgt is where the programs of tgt are. The package is not installed: it would start a service of its own.
var tgt = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(base, "tgt")
	return filepath.Join(dir, "usr/sbin"), unpack("tgt", dir, "./usr/sbin/*")
})

// serve serves an image as a target. Its tgtd is killed at the end of the test.
func serve(t *testing.T, image string) *target {
	t.Helper()
	dir, err := tgt()
	require.NoError(t, err)
	s := &target{portal: freePort(t), name: "iqn.2020-01.invalid.lab:disk"}
	run := directory(t)
	env := append(os.Environ(), "TGT_IPC_SOCKET="+filepath.Join(run, "s"))
	log, err := os.Create(filepath.Join(run, "log"))
	require.NoError(t, err)
	defer log.Close()
	tgtd := exec.Command(filepath.Join(dir, "tgtd"), "-f", "-C", "1", "--iscsi", "portal="+s.portal)
	tgtd.Env, tgtd.Stdout, tgtd.Stderr = env, log, log
	tgtd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, tgtd.Start())
	t.Cleanup(func() {
		_ = tgtd.Process.Kill()
		_ = tgtd.Wait()
		if b, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("tgtd: %s (%v)", b, err)
		}
	})
	admin := func(args string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "tgtadm"), append([]string{"-C", "1", "--lld", "iscsi"}, strings.Fields(args)...)...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	eventually(t, "tgtd serves", func() bool { _, err := admin("--op show --mode target"); return err == nil })
	for _, args := range []string{
		"--op new --mode target --tid 1 -T " + s.name,
		"--op new --mode logicalunit --tid 1 --lun 1 -b " + image,
		"--op bind --mode target --tid 1 -I ALL",
	} {
		out, err := admin(args)
		require.NoError(t, err, "tgtadm %s: %s", args, out)
	}
	return s
}

// freePort returns an address on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// scsi is a target as /dev/sda of a machine, whose SCSI commands go there as they are, as if it were another
// initiator on a SAN.
func (s *target) scsi(initiator string) []string {
	return []string{"-device", "virtio-scsi-pci", "-device", "scsi-block,drive=sda",
		"-drive", fmt.Sprintf("if=none,id=sda,driver=raw,cache=none,file.driver=iscsi,file.transport=tcp,file.portal=%s,file.target=%s,file.lun=1,file.initiator-name=iqn.2020-01.invalid.lab:%s",
			s.portal, s.name, initiator)}
}

// disk loads the driver of a disk and waits for it.
func (m *machine) disk(driver, dev string) {
	m.t.Helper()
	m.sh("modprobe " + driver + "; until test -b " + dev + "; do sleep 0.1; done")
}
