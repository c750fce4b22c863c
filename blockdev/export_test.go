package blockdev

import "testing"

// RingsAllowed reports whether this process can use io_uring.
func RingsAllowed() bool { return ringsAllowed() }

// ForbidRings makes disks that are opened during the test work as if the kernel did not permit io_uring.
func ForbidRings(t testing.TB) {
	before := ringsAllowed
	ringsAllowed = func() bool { return false }
	t.Cleanup(func() { ringsAllowed = before })
}

// Rings returns the number of rings of a disk that no request uses.
func (d *Disk) Rings() int {
	if d.rings == nil {
		return 0
	}
	d.rings.mu.Lock()
	defer d.rings.mu.Unlock()
	return len(d.rings.idle)
}

// ProbeBlock returns the smallest block in which the beginning of an open file can be read.
var ProbeBlock = probeBlock

// FD returns the descriptor of a disk.
func (d *Disk) FD() int { return d.fd }

// SetLogicalBlock makes a disk accept requests that the kernel may refuse.
func (d *Disk) SetLogicalBlock(n int) { d.info.LogicalBlock = n }

// Begin begins a request that is under way until end is called, and reports whether the disk is open.
func (d *Disk) Begin() (end func(), ok bool) {
	id, ok := d.ledger.begin(OpWrite)
	return func() { d.ledger.end(id, nil) }, ok
}

// WriteZeroes does what Zero does if neither the filesystem nor the driver makes zeroes.
func (d *Disk) WriteZeroes(off, n int64) error { return d.writeZeroes(off, n) }

// DiskID returns the name of the disk with a directory in sysfs.
var DiskID = diskID
