package format

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// named is a device with a path of its own.
type named struct {
	blockdev.Device
	path string
}

func (n named) Info() blockdev.Info {
	info := n.Device.Info()
	info.Path = n.path
	return info
}

func diskPath(i int) string { return fmt.Sprintf("/dev/disk%d", i+1) }

// openAll opens disks for one host.
func openAll(disks []*disktest.Memory) (devs []blockdev.Device) {
	for i, d := range disks {
		devs = append(devs, named{d.Open(), diskPath(i)})
	}
	return devs
}

// newDisks returns n empty disks with blocks of 512 bytes.
func newDisks(n int) (disks []*disktest.Memory) {
	for range n {
		disks = append(disks, disktest.NewMemory(256<<10, 512, 512))
	}
	return disks
}

func contentsOf(t testing.TB, disks []*disktest.Memory) (contents [][]byte) {
	for _, d := range disks {
		contents = append(contents, lockspacetest.Contents(t, d))
	}
	return contents
}

// oldSeveral puts a lockspace on all disks, and the record and a slot of each host on the disks of
// its list, by index.
func oldSeveral(t testing.TB, disks []*disktest.Memory, hosts map[*layout.HostRecord][]int) layout.Superblock {
	t.Helper()
	o := formatOptions("old")
	o.Lease, o.Force = oldLease, true
	result, err := FormatDevices(context.Background(), openAll(disks), o)
	require.NoError(t, err)
	sb := result.Superblock
	for h, on := range hosts {
		for _, i := range on {
			putCopy(t, disks[i], sb.Geometry.Stride, sb.Geometry.Host(h.ID), i+1, func(p []byte) error {
				return sb.Space().EncodeHost(p, *h)
			})
			putCopy(t, disks[i], sb.Geometry.Stride, sb.Geometry.Slot(1, h.ID), i+1, func(p []byte) error {
				return sb.Space().EncodeSlot(p, layout.Slot{Lock: 1, Host: h.ID, Incarnation: h.Incarnation, Generation: 1, Creation: 1,
					Phase: layout.Held, Ticket: layout.MakeTicket(77, h.ID)})
			})
		}
	}
	return sb
}

func putCopy(t testing.TB, disk *disktest.Memory, stride int, at int64, position int, encode func([]byte) error) {
	t.Helper()
	p := blockdev.Alloc(stride)
	require.NoError(t, encode(p))
	layout.PlaceCopy(p, position)
	require.NoError(t, disk.Open().Write(p, at))
}

// severalHost is a live host of a lockspace on several disks.
func severalHost(id int, name string) *layout.HostRecord {
	h := liveHost(id, name)
	h.Generation = 1
	return &h
}

func forced(name string) Options {
	o := formatOptions(name)
	o.Force = true
	return o
}

// wipeOld puts a lockspace on a disk and interrupts a format after its second step.
func wipeOld(t testing.TB, memory *disktest.Memory) error {
	old := oldLockspace(t, memory)
	return (&disk{dev: memory.Open(), found: occupant{kind: deviceLockspace, old: old}}).wipe()
}
