// Package measure writes and reads a block of a disk. It measures how long requests take, and
// checks that other paths to the disk show the writes. The block is a Patch, which the caller
// supplies. Start reading at Run.
package measure

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// ManySlots is the number of slots in one read, as of a lock that 64 hosts use.
const ManySlots = 64

const (
	ProbeCount = 1000             // requests of each kind, if Options.For is 0
	probeLimit = 15 * time.Second // their time limit

	PathWrites = 200                   // writes that are read by another path
	pathLimit  = 5 * time.Second       // their time limit
	staleReads = 100                   // reads of one write that the other path does not show
	stalePause = 20 * time.Millisecond // pause between these reads
)

// Options are the options of a measurement.
type Options struct {
	For    time.Duration     // duration; 0 for ProbeCount requests of each kind
	Others []blockdev.Device // other paths to the disk, which must show every write

	Counter lockspace.Counter // progress of the measurement; nil if not needed
}

// Measurement is the result of a measurement.
type Measurement struct {
	Lockspace bool            `json:"lockspace"`  // whether the patch was a slot of the lock "probe", not an unused block
	Write     latency.Summary `json:"write"`      // durable writes of one block
	Read      latency.Summary `json:"read"`       // reads of one block
	ReadMany  latency.Summary `json:"read_slots"` // reads of several blocks at once
	Many      int             `json:"slots"`      // blocks in one of these reads
	Paths     []PathResult    `json:"paths"`      // for each further path
}

// PathResult is the result of reading the writes of one path to a disk by another path.
type PathResult struct {
	Path   string `json:"path"`   // the path that was read
	Writes int    `json:"writes"` // number of writes
	Stale  int    `json:"stale"`  // writes that the first read after them did not show
	Never  bool   `json:"never"`  // whether no read showed the last of these
}

// ErrDisturbed is returned when a read does not return the last write of a probe.
var ErrDisturbed = errors.New("a read did not return the last write")

// Patch is a block of a device that a probe may write. One goroutine uses it.
type Patch struct {
	Dev    blockdev.Device
	At     int64  // offset of the block
	Block  []byte // buffer for reading it
	ManyAt int64  // offset of several consecutive blocks
	Many   []byte // buffer for reading them

	// Write durably writes new contents and returns how long that took.
	Write func() (time.Duration, error)
	// Shows reports whether a block that was read has what Write wrote last, or newer contents.
	Shows func(block []byte) bool
}

// Read reads the block. It returns ErrDisturbed if it is not what Write wrote last.
func (p *Patch) Read() (time.Duration, error) {
	begun := time.Now()
	err := p.Dev.Read(p.Block, p.At)
	took := time.Since(begun)
	if err == nil && !p.Shows(p.Block) {
		err = fmt.Errorf("%w, at byte %d of %s", ErrDisturbed, p.At, p.Dev.Info().Path)
	}
	return took, err
}

// SeenBy reports whether a device shows the last write.
func (p *Patch) SeenBy(dev blockdev.Device) (bool, error) {
	if err := dev.Read(p.Block, p.At); err != nil {
		return false, err
	}
	return p.Shows(p.Block), nil
}

func (p *Patch) readMany() (time.Duration, error) {
	begun := time.Now()
	err := p.Dev.Read(p.Many, p.ManyAt)
	return time.Since(begun), err
}

// Run writes and reads a patch, then checks that other paths show its writes.
func Run(ctx context.Context, p *Patch, o Options) (*Measurement, error) {
	var write, read, many latency.Recorder
	begun, count, limit := time.Now(), ProbeCount, probeLimit
	if o.For > 0 {
		count, limit = math.MaxInt, o.For
	}
	for n := range rounds(ctx, count, limit) {
		done := max(int64(n*ProbeCount/count), time.Since(begun).Milliseconds()*ProbeCount/max(1, limit.Milliseconds()))
		o.Counter.Report("writing and reading", done, ProbeCount, false)
		for _, step := range []struct {
			do    func() (time.Duration, error)
			times *latency.Recorder
		}{{p.Write, &write}, {p.Read, &read}, {p.readMany, &many}} {
			took, err := step.do()
			if err != nil {
				return nil, err
			}
			step.times.Add(took)
		}
	}
	m := &Measurement{Write: write.Summary(), Read: read.Summary(), ReadMany: many.Summary(),
		Many: len(p.Many) / len(p.Block), Paths: []PathResult{}}
	for _, other := range o.Others {
		s, err := measurePath(ctx, p, other, o.Counter)
		if err != nil {
			return nil, err
		}
		m.Paths = append(m.Paths, s)
	}
	return m, context.Cause(ctx)
}

// rounds counts from 1 to count, at least once, until limit is over or ctx ends.
func rounds(ctx context.Context, count int, limit time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		begun := time.Now()
		for n := 1; n == 1 || n <= count && time.Since(begun) < limit; n++ {
			if ctx.Err() != nil || !yield(n) {
				return
			}
		}
	}
}

// measurePath writes a patch, and after every write reads it by another path. A cache on that path
// would return the contents of its last read.
func measurePath(ctx context.Context, p *Patch, other blockdev.Device, counter lockspace.Counter) (PathResult, error) {
	s := PathResult{Path: other.Info().Path}
	for range rounds(ctx, PathWrites, pathLimit) {
		if _, err := p.Write(); err != nil {
			return s, err
		}
		s.Writes++
		counter.Report("reading by "+text.Printable(s.Path), int64(s.Writes), PathWrites, false)
		seen, err := p.SeenBy(other)
		if err == nil && !seen {
			s.Stale++
		}
		for n := 0; err == nil && !seen; n++ { // counted, not timed: a frozen probe does not read
			if s.Never = n == staleReads; s.Never {
				return s, nil
			}
			if err = retry.Pause(ctx, stalePause); err == nil {
				seen, err = p.SeenBy(other)
			}
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}
