package lockspacetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// Codec is that of the records of a lockspace.
type Codec struct{ layout.Space }

// Version implements mirror.Codec.
func (c Codec) Version(block []byte, off int64, position int) (mirror.Version, error) {
	v, err := c.CopyVersion(block, off, position+1)
	return mirror.Version(v), err
}

// Place implements mirror.Codec.
func (Codec) Place(block []byte, position int) { layout.PlaceCopy(block, position+1) }

// Several is a lockspace in memory on several disks, without hosts.
type Several struct {
	T     testing.TB
	Disks []*disktest.Memory
	SB    layout.Superblock // of the first disk
}

// NewSeveral returns a lockspace on 3 or 5 disks with the given time of formatting.
func NewSeveral(t testing.TB, disks, hosts, locks int, formatted time.Time) *Several {
	g := layout.Geometry{Stride: 512, Hosts: hosts, Locks: locks}
	c := &Several{T: t, SB: layout.Superblock{UUID: layout.UUID{1, 2, 3}, Name: "test", Geometry: g, Lease: 2 * time.Second,
		Formatted: formatted.UTC().Truncate(time.Microsecond), Members: layout.Members{Epoch: 1, Positions: disks}, Position: 1}}
	for i := range disks {
		c.SB.Members.Disks[i] = layout.UUID{9, byte(i + 1)}
		c.Disks = append(c.Disks, disktest.NewMemory(max(g.Size(), layout.HeadSize), 512, 512))
	}
	for i, disk := range c.Disks {
		sb := c.SB
		sb.Position = i + 1
		PutSuperblocks(t, disk.Open(), sb)
	}
	return c
}

// reopened returns a device for a disk of which the faults stay when it is opened again. Its Close
// waits for its requests, and leaves the disk open.
func reopened(disk *disktest.Faulty) blockdev.Device {
	h := blockdev.NewHandle(disk.Info(), func(r blockdev.Request) error {
		switch r.Op {
		case blockdev.OpRead:
			return disk.Read(r.Bytes, r.Off)
		case blockdev.OpWrite:
			return disk.Write(r.Bytes, r.Off)
		}
		return disk.Zero(r.Off, r.N)
	}, func() error { return nil })
	return &h
}

// Fixed is a set whose list of members does not change.
type Fixed struct {
	*mirror.Set
	SB layout.Superblock
}

// Superblock returns SB.
func (f Fixed) Superblock() layout.Superblock { return f.SB }

// Own does nothing.
func (f Fixed) Own(int, uint64) {}

// Follow finds no other list.
func (f Fixed) Follow() (changed bool, err error) { return false, nil }

// Open opens the disks as one host sees them, each with faults.
func (c *Several) Open() (Fixed, []*disktest.Faulty) {
	c.T.Helper()
	var list []mirror.Member
	var faults []*disktest.Faulty
	for i, disk := range c.Disks {
		f := disktest.NewFaulty(disk.Open(), disktest.FaultyOptions{Seed: uint64(i)})
		faults = append(faults, f)
		list = append(list, mirror.Member{Name: fmt.Sprintf("disk%d", i), ID: c.SB.Members.Disks[i], Open: func() (blockdev.Device, error) { return reopened(f), nil }})
	}
	set, err := mirror.Open(list, mirror.Options{Stride: c.SB.Geometry.Stride, Size: c.Disks[0].Open().Info().Size, Codec: Codec{c.SB.Space()},
		Check: func(i int, dev blockdev.Device) error {
			p := blockdev.Alloc(c.SB.Geometry.Stride)
			if err := dev.Read(p, 0); err != nil {
				return err
			}
			sb, err := layout.DecodeSuperblock(p, 0)
			if err == nil && sb.Position != i+1 {
				err = fmt.Errorf("it is at position %d", sb.Position)
			}
			return err
		},
		Timeout: c.SB.Lease, Patience: c.SB.Lease, Retry: c.SB.Lease / 4})
	require.NoError(c.T, err)
	return Fixed{set, c.SB}, faults
}

// Slots returns the copies of a slot.
func (c *Several) Slots(lock, host int) (copies []layout.Slot) {
	c.T.Helper()
	for i, disk := range c.Disks {
		buf := blockdev.Alloc(c.SB.Geometry.Stride)
		require.NoError(c.T, disk.Open().Read(buf, c.SB.Geometry.Slot(lock, host)))
		s, err := c.SB.Space().DecodeSlot(buf, lock, host)
		require.NoError(c.T, err, "disk %d", i)
		copies = append(copies, s)
	}
	return copies
}

// Put writes a record on all disks.
func (c *Several) Put(off int64, encode func(buf []byte) error) {
	c.T.Helper()
	buf := blockdev.Alloc(c.SB.Geometry.Stride)
	require.NoError(c.T, encode(buf))
	for i, disk := range c.Disks {
		layout.PlaceCopy(buf, i+1)
		require.NoError(c.T, disk.Open().Write(buf, off))
	}
}
