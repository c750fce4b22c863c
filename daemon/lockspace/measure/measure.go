// Package measure writes and reads a block of a disk: how long requests take, and whether other ways to the disk show what was
// written. The block is a Patch of the caller.
package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// ManySlots is how many slots are read at once, as a host does that takes a lock among as many.
const ManySlots = 64

const (
	ProbeCount = 1000             // of each request, where the time is not given,
	probeLimit = 15 * time.Second // in so much time at most

	SightCount = 200                   // writes after which another way to the disk is read
	sightLimit = 5 * time.Second       // in so much time at most
	sightAgain = 100                   // reads in search of one that is not seen at once,
	sightPause = 20 * time.Millisecond // so far apart
)

// Options say how a device is to be measured.
type Options struct {
	For    time.Duration     // how long to write and read; 0: a thousand times each
	Others []blockdev.Device // further ways to the same disk, by which every write must be seen at once

	Counter lockspace.Counter // is told how far it is; may be nil
}

// Measurement is how a device did.
type Measurement struct {
	Lockspace bool          `json:"lockspace"` // its own slot of the lock "probe" was written, else an unused block
	Write     probe.Latency `json:"write"`     // of one block, durable
	Read      probe.Latency `json:"read"`      // of one block
	ReadMany  probe.Latency `json:"read_slots"`
	Many      int           `json:"slots"` // that were read at once
	Sights    []Sight       `json:"paths"`
}

// Sight is how the writes by one way to a disk looked by another.
type Sight struct {
	Path   string `json:"path"`
	Writes int    `json:"writes"`
	Stale  int    `json:"stale"` // that were not seen by the first read after them
	Never  bool   `json:"never"` // the last of these not at all
}

// ErrDisturbed is returned when something else than what a probe wrote last was read back.
var ErrDisturbed = errors.New("what was written is not what is read back")

// Patch is a block of a device that a probe may write. One goroutine uses it.
type Patch interface {
	// Write writes something new durably, and returns how long that took.
	Write() (time.Duration, error)
	// Read reads it back. It returns ErrDisturbed if it is not what was written last.
	Read() (time.Duration, error)
	// ReadMany reads Many blocks in a row.
	ReadMany() (time.Duration, error)
	Many() int
	// SeenBy tells whether another device shows what was written last.
	SeenBy(other blockdev.Device) (bool, error)
	// Close leaves the device as it was found.
	Close() error
}

// Run writes and reads a patch, then looks whether it is seen by other ways.
func Run(ctx context.Context, p Patch, o Options) (*Measurement, error) {
	var write, read, many probe.Stopwatch
	effort := probe.Effort{Count: ProbeCount, Limit: probeLimit, For: o.For}
	begun, limit, n := time.Now(), probeLimit, 0
	if o.For > 0 {
		limit = o.For
	}
	err := effort.Repeat(ctx, func() error {
		done := time.Since(begun).Milliseconds() * ProbeCount / max(1, limit.Milliseconds())
		if n++; o.For == 0 {
			done = max(done, int64(n))
		}
		o.Counter.Tell("writing and reading", done, ProbeCount, false)
		for _, step := range []struct {
			do    func() (time.Duration, error)
			times *probe.Stopwatch
		}{{p.Write, &write}, {p.Read, &read}, {p.ReadMany, &many}} {
			took, err := step.do()
			if err != nil {
				return err
			}
			step.times.Add(took)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := &Measurement{Write: write.Latency(), Read: read.Latency(), ReadMany: many.Latency(), Many: p.Many(), Sights: []Sight{}}
	for _, other := range o.Others {
		s, err := sight(ctx, p, other, o.Counter)
		if err != nil {
			return nil, err
		}
		m.Sights = append(m.Sights, s)
	}
	return m, nil
}

// sight writes a patch, and after every write reads it by another way. What that way had read before is what a cache
// on it would return again.
func sight(ctx context.Context, p Patch, other blockdev.Device, counter lockspace.Counter) (Sight, error) {
	s := Sight{Path: other.Info().Path}
	errBlind := errors.New("not seen")
	err := probe.Effort{Count: SightCount, Limit: sightLimit}.Repeat(ctx, func() error {
		if _, err := p.Write(); err != nil {
			return err
		}
		seen, err := p.SeenBy(other)
		if err != nil {
			return err
		}
		s.Writes++
		counter.Tell("looking by "+text.Printable(s.Path), int64(s.Writes), SightCount, false)
		if seen {
			return nil
		}
		s.Stale++
		for n := 0; !seen; n++ { // counted, not timed: a probe that stands still has not looked
			if n == sightAgain {
				s.Never = true
				return errBlind
			}
			if err := retry.Pause(ctx, sightPause); err != nil {
				return err
			}
			if seen, err = p.SeenBy(other); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errBlind) {
		err = nil
	}
	return s, err
}

// JudgeLatency says what a measurement means for a lease; 0: there is no lockspace yet.
func (m *Measurement) JudgeLatency(current time.Duration) probe.Finding {
	f := probe.Finding{ID: "lease", Verdict: probe.OK}
	least, choose, ok := lease.Suggest(m.Write.P999, m.Write.Most, lockspace.DefaultLease)
	f.Detail = fmt.Sprintf("the slowest of %d durable writes took %v", m.Write.Count, m.Write.Most.Round(time.Microsecond))
	switch {
	case !ok:
		f.Verdict, f.Remedy = probe.Unfit, "find out why the device hangs"
		f.Detail += fmt.Sprintf(", and none may take longer than a twentieth of the lease, which is %v at most", lease.MaxLease)
	case current == 0:
		f.Detail += fmt.Sprintf(": a lease of %v is long enough, %v the one to choose", least, choose)
		f.Remedy = formatLease(choose)
	case current < least:
		f.Verdict = probe.Warning
		f.Detail += fmt.Sprintf(", more than the lease of %v has room for (a twentieth, with some to spare): it takes one of %v", current, choose)
		f.Remedy = formatLease(choose)
		if current < m.Write.Most {
			f.Verdict = probe.Unfit
		}
	default:
		f.Detail += fmt.Sprintf(": the lease of %v is long enough, %v would be too", current, least)
	}
	return f
}

func formatLease(l time.Duration) string {
	if l == lockspace.DefaultLease {
		return ""
	}
	return fmt.Sprintf("bakeryctl format --lease %v", l)
}
