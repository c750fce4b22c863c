package scale

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// disk is a disk in memory that may be far larger than the memory: only written sectors take space.
// It is an unnamed file, not memory of the process, so that it is in neither the measured heap nor
// the resident set.
type disk struct {
	file *os.File
	info blockdev.Info
	g    layout.Geometry
}

func newDisk(g layout.Geometry) (*disk, error) {
	fd, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a disk in memory: %w", err)
	}
	const block = 4096
	size := (max(g.Size(), layout.HeadSize) + block - 1) / block * block
	d := &disk{file: os.NewFile(uintptr(fd), "disk"), g: g,
		info: blockdev.Info{Path: "memory", LogicalBlock: 512, PhysicalBlock: g.Stride, Size: size}}
	if err := d.file.Truncate(size); err != nil {
		return nil, err
	}
	return d, nil
}

// area is a part of the disk.
type area int

const (
	table     area = iota // superblocks and host records, which are read together
	directory             // names of the locks
	slots
	areas
)

func (d *disk) area(off int64) area {
	switch {
	case off < d.g.Entry(1):
		return table
	case off < d.g.Slot(0, 1):
		return directory
	}
	return slots
}

// Traffic is a host's requests to the disk.
type Traffic struct {
	Reads      int64 `json:"reads"`
	ReadBytes  int64 `json:"read_bytes"`
	Writes     int64 `json:"writes"`
	WriteBytes int64 `json:"write_bytes"`
}

func (t Traffic) minus(o Traffic) Traffic {
	return Traffic{t.Reads - o.Reads, t.ReadBytes - o.ReadBytes, t.Writes - o.Writes, t.WriteBytes - o.WriteBytes}
}

func (t Traffic) plus(o Traffic) Traffic {
	return Traffic{t.Reads + o.Reads, t.ReadBytes + o.ReadBytes, t.Writes + o.Writes, t.WriteBytes + o.WriteBytes}
}

// handle is one host's handle of the disk.
type handle struct {
	*disk
	latency time.Duration
	counts  [areas]struct{ reads, readBytes, writes, writeBytes atomic.Int64 }
}

// open opens the disk for another host; every request takes latency longer.
func (d *disk) open(latency time.Duration) *handle { return &handle{disk: d, latency: latency} }

// wait is the time that a request takes. It blocks a thread, because timers of the runtime are up to
// a millisecond late; this one is late by the timer slack of 50 microseconds.
func (h *handle) wait() {
	if h.latency > 0 {
		ts := unix.NsecToTimespec(max(1, h.latency-50*time.Microsecond).Nanoseconds())
		_ = unix.Nanosleep(&ts, nil) // a signal ends it early, which does no harm
	}
}

// traffic returns the host's requests to one part of the disk so far.
func (h *handle) traffic(a area) Traffic {
	c := &h.counts[a]
	return Traffic{c.reads.Load(), c.readBytes.Load(), c.writes.Load(), c.writeBytes.Load()}
}

func (h *handle) total() (sum Traffic) {
	for a := range areas {
		sum = sum.plus(h.traffic(a))
	}
	return sum
}

func (h *handle) Info() blockdev.Info { return h.info }

func (h *handle) Read(p []byte, off int64) error {
	c := &h.counts[h.area(off)]
	c.reads.Add(1)
	c.readBytes.Add(int64(len(p)))
	h.wait()
	_, err := h.file.ReadAt(p, off)
	return err
}

func (h *handle) Write(p []byte, off int64) error {
	c := &h.counts[h.area(off)]
	c.writes.Add(1)
	c.writeBytes.Add(int64(len(p)))
	h.wait()
	_, err := h.file.WriteAt(p, off)
	return err
}

// Zero implements blockdev.Device; hosts do not use it.
func (h *handle) Zero(off, n int64) error { return errors.ErrUnsupported }

// Stats implements blockdev.Device; Traffic has what is measured.
func (h *handle) Stats() blockdev.Stats { return blockdev.Stats{} }

// Close does nothing: other hosts use the disk.
func (h *handle) Close() error { return nil }
