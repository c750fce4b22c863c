//go:build vm

package vm

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// initiator is a path to a SCSI disk, with its own registration.
type initiator struct {
	*machine
	dev string
}

// pr does a step of fencing that must succeed.
func (i initiator) pr(key string, args ...string) string {
	i.t.Helper()
	return i.run(append([]string{"pr", i.dev, key}, args...)...)
}

// prFails does a step that must fail, for a reason.
func (i initiator) prFails(why, key string, args ...string) {
	i.t.Helper()
	c := i.start(append([]string{"pr", i.dev, key}, args...)...)
	c.exits(1)
	c.says(why)
}

// Two machines share a disk of tgt, and one is fenced while it writes: after the confirmation it
// writes nothing more. tgt refuses the kernel's ioctls, because it has no persistence through power
// loss, so all steps use SG_IO. It cannot abort, either.
func TestReservationBetweenMachines(t *testing.T) {
	t.Parallel()
	disk := image(t, "disk", 16)
	s := serve(t, disk)
	a := initiator{start(t, "a", scsi("a", s.unit(1))...), "/dev/sda"}
	b := initiator{start(t, "b", scsi("b", s.unit(1))...), "/dev/sda"}
	for _, i := range []initiator{a, b} {
		i.booted(1)
		i.run("modprobe", "sd_mod")
		i.disk("virtio_scsi", i.dev)
	}
	register(t, a, b)
	writer := b.start("pr", b.dev, "0", "count")
	writer.says("counting")
	a.pr(keyA, "fence", keyB)
	last := counted(t, disk)
	require.NotZero(t, last)
	writer.exits(1)
	writer.says(conflict)
	require.Equal(t, last, counted(t, disk), "it wrote after the fencing")

	b.pr("0", "read")
	require.NotContains(t, b.pr("0", "keys"), keyB)
	b.prFails("fenced", keyB, "resume")
	a.pr("0", "write")
	a.pr(keyA, "fence", keyB) // already fenced: no error
	b.pr(nextB, "register")
	b.pr("0", "write")
	unregister(t, a, b, nextB)
}

// counted returns the last number that pr count has written, from the image.
func counted(t *testing.T, image string) uint64 {
	t.Helper()
	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	var sector [8]byte
	_, err = f.ReadAt(sector[:], 8<<20)
	require.NoError(t, err)
	return binary.LittleEndian.Uint64(sector[:])
}

// The kernel's own target supports all its ioctls. Two initiators reach it from within one machine.
// (No initiator is fenced there: Linux 6.1 deadlocks when it aborts by way of tcm_loop.)
func TestReservationByIoctl(t *testing.T) {
	t.Parallel()
	m := boot(t, "lio")
	m.sh(`
		mkdir -p /var/target/pr
		modprobe -a sd_mod target_core_file tcm_loop
		truncate -s 16M /run/disk
		mount -t configfs configfs /sys/kernel/config
		cd /sys/kernel/config/target
		mkdir -p core/fileio_0/disk
		echo fd_dev_name=/run/disk,fd_dev_size=16777216 >core/fileio_0/disk/control
		echo lab >core/fileio_0/disk/wwn/vpd_unit_serial
		echo 1 >core/fileio_0/disk/enable
		for i in 1 2; do
			tpg=loopback/naa.600140500000000$i/tpgt_1
			mkdir -p $tpg/lun/lun_0
			echo naa.600140510000000$i >$tpg/nexus
			ln -s $PWD/core/fileio_0/disk $tpg/lun/lun_0/disk
		done
		until test -b /dev/sda -a -b /dev/sdb; do sleep 0.1; done`)
	a, b := initiator{m, "/dev/sda"}, initiator{m, "/dev/sdb"}
	register(t, a, b)
	m.sh("test -s /var/target/pr/aptpl_lab") // persistence through power loss was requested, so it was not SG_IO
	b.pr(keyB, "resume")
	unregister(t, a, b, keyB)
}

const (
	keyA, keyB, nextB = "a0001", "b0002", "c0002"

	conflict = "invalid exchange" // EBADE, the kernel's error for a reservation conflict
)

// register registers two initiators; before, neither can write.
func register(t *testing.T, a, b initiator) {
	t.Helper()
	a.pr(keyA, "register")
	b.prFails(conflict, "0", "write")
	b.pr(keyB, "register")
	for _, i := range []initiator{a, b} {
		i.pr("0", "write")
		keys := i.pr("0", "keys")
		require.Contains(t, keys, keyA)
		require.Contains(t, keys, keyB)
		require.Contains(t, keys, "true Write Exclusive - All Registrants")
	}
}

// unregister unregisters them one after the other; afterwards all initiators can write.
func unregister(t *testing.T, a, b initiator, keyB string) {
	t.Helper()
	b.pr(keyB, "unregister")
	b.prFails(conflict, "0", "write")
	a.pr("0", "write")
	a.pr(keyA, "unregister")
	require.True(t, strings.HasPrefix(a.pr("0", "keys"), "[] false"))
	b.pr("0", "write")
}
