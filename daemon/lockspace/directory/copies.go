package directory

import (
	"errors"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
)

// ErrUnsettled is returned for a record with a newest version that fewer than a majority of the member
// disks show. It may be gone in the next read (SETTLED in bakery/PROTOCOL.md).
var ErrUnsettled = errors.New("unsettled: fewer than a majority of the member disks show its newest version")

// Copies is the part of [mirror.Set] that reads the directory. With several disks the device of a
// lockspace has it.
type Copies interface {
	All() mirror.Positions
	ReadCopies(p []byte, off int64, need mirror.Positions, visit func(mirror.Copy)) error
}

// Settling is a device on several disks that determines which of the records read are settled: a
// majority of the members show the newest version. It is used by one goroutine.
type Settling struct {
	blockdev.Device
	stride int
	visit  func(off int64, c mirror.Copy) // is called for each valid copy; nil if not needed
	votes  map[int64]votes                // of the last read of each record, by offset
}

// votes are the copies of one record in one read.
type votes struct {
	newest      mirror.Version
	shown, seen mirror.Positions // members that show the newest version; those with a valid copy
}

// NewSettling returns a device for reads of records of one size. Its device must have Copies. visit may
// be nil.
func NewSettling(dev blockdev.Device, stride int, visit func(off int64, c mirror.Copy)) *Settling {
	return &Settling{Device: dev, stride: stride, visit: visit, votes: map[int64]votes{}}
}

// Read reads records. A majority of the copies comes first. If that leaves a record unsettled, Read waits
// for all copies.
func (d *Settling) Read(p []byte, off int64) error {
	if _, err := d.read(p, off, 0); err != nil || d.settled(p, off) {
		return err
	}
	failed, err := d.read(p, off, d.copies().All())
	if err != nil || !failed {
		return err
	}
	// A member may have failed because of one bad sector.
	for at := 0; at < len(p) && len(p) > d.stride; at += d.stride {
		if record := p[at : at+d.stride]; !d.settled(record, off+int64(at)) {
			if _, err := d.read(record, off+int64(at), d.copies().All()); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads records once, and reports whether a member failed.
func (d *Settling) read(p []byte, off int64, need mirror.Positions) (failed bool, err error) {
	found := make([]votes, len(p)/d.stride)
	err = d.copies().ReadCopies(p, off, need, func(c mirror.Copy) {
		if c.Err != nil {
			failed = failed || c.Block == nil
			return
		}
		v := &found[c.Record]
		if v.newest.Less(c.Version) {
			v.newest, v.shown = c.Version, 0
		}
		if v.seen |= mirror.At(c.Position); c.Version == v.newest {
			v.shown |= mirror.At(c.Position)
		}
		if d.visit != nil {
			d.visit(off+int64(c.Record*d.stride), c)
		}
	})
	for i, v := range found {
		d.votes[off+int64(i*d.stride)] = v
	}
	return failed, err
}

func (d *Settling) copies() Copies { return d.Device.(Copies) }

// settled reports whether all of these records are.
func (d *Settling) settled(p []byte, off int64) bool {
	for at := range len(p) / d.stride {
		if !d.Settled(off + int64(at*d.stride)) {
			return false
		}
	}
	return true
}

// Settled reports whether the record at an offset was settled when it was read last.
func (d *Settling) Settled(off int64) bool {
	return d.votes[off].shown.Count() > d.copies().All().Count()/2
}

// Complete reports whether the last read of the record at an offset saw a valid copy of each member.
func (d *Settling) Complete(off int64) bool {
	return d.votes[off].seen == d.copies().All()
}
