package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// ProbeLock is the lock whose slot a probe writes.
const ProbeLock = "probe"

const (
	manySlots = 64 // read at once, as a host does that takes a lock among as many

	probeCount = 1000             // of each request, where the time is not given,
	probeLimit = 15 * time.Second // in so much time at most

	sightCount = 200                   // writes after which another way to the disk is read
	sightLimit = 5 * time.Second       // in so much time at most
	sightAgain = 100                   // reads in search of one that is not seen at once,
	sightPause = 20 * time.Millisecond // so far apart
)

// ProbeOptions say how a device is to be measured.
type ProbeOptions struct {
	For    time.Duration     // how long to write and read; 0: a thousand times each
	Others []blockdev.Device // further ways to the same disk, by which every write must be seen at once
	Config Config            // of the host as which to join, where there is a lockspace

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

// patch is a block of a device that a probe may write. One goroutine uses it.
type patch interface {
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

// ProbeVacant measures a device on which nothing is, by its first block, and leaves that zeroes as before. It returns
// ErrOccupied, ErrProbed, ErrForeignVersion, ErrDisturbed, errors of IO, or the cause of ctx's end.
func ProbeVacant(ctx context.Context, dev blockdev.Device, o ProbeOptions) (*Measurement, error) {
	s, err := openScratch(ctx, dev)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", dev.Info().Path, err)
	}
	m, err := measure(ctx, s, o)
	if !errors.Is(err, ErrDisturbed) { // else it is not the probe's own any more
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", dev.Info().Path, err)
	}
	return m, nil
}

// ProbeLockspace joins the lockspace that o.Config names and measures it by the own slot of the lock ProbeLock, which
// is created and stays. It returns the errors of [Daemon.Join] and Acquire, those of IO, or the cause of ctx's end.
func ProbeLockspace(ctx context.Context, o ProbeOptions) (_ *Measurement, err error) {
	if o.Config.Logger == nil {
		o.Config.Logger = slog.New(slog.DiscardHandler)
	}
	d := New(o.Config)
	if err := d.Join(ctx); err != nil {
		return nil, err
	}
	defer func() {
		leaving, cancel := context.WithTimeout(context.Background(), d.StopTimeout())
		defer cancel()
		err = errors.Join(err, d.Close(leaving))
	}()
	return d.measureSlot(ctx, o)
}

func (d *Daemon) measureSlot(ctx context.Context, o ProbeOptions) (*Measurement, error) {
	lk, err := d.find(ctx, Request{Name: ProbeLock})
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", ProbeLock, err)
	}
	g := d.sb.Geometry
	s := &slotPatch{lk: lk, buf: blockdev.Alloc(g.Stride), many: blockdev.Alloc(min(manySlots, g.Hosts) * g.Stride)}
	m, err := measure(ctx, s, o)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", d.cfg.Device, err)
	}
	m.Lockspace = true
	return m, nil
}

// measure writes and reads a patch, then looks whether it is seen by other ways.
func measure(ctx context.Context, p patch, o ProbeOptions) (*Measurement, error) {
	var write, read, many probe.Stopwatch
	effort := probe.Effort{Count: probeCount, Limit: probeLimit, For: o.For}
	begun, limit, n := time.Now(), probeLimit, 0
	if o.For > 0 {
		limit = o.For
	}
	err := effort.Repeat(ctx, func() error {
		done := time.Since(begun).Milliseconds() * probeCount / max(1, limit.Milliseconds())
		if n++; o.For == 0 {
			done = max(done, int64(n))
		}
		o.Counter.Tell("writing and reading", done, probeCount, false)
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
func sight(ctx context.Context, p patch, other blockdev.Device, counter lockspace.Counter) (Sight, error) {
	s := Sight{Path: other.Info().Path}
	errBlind := errors.New("not seen")
	err := probe.Effort{Count: sightCount, Limit: sightLimit}.Repeat(ctx, func() error {
		if _, err := p.Write(); err != nil {
			return err
		}
		seen, err := p.SeenBy(other)
		if err != nil {
			return err
		}
		s.Writes++
		counter.Tell("looking by "+text.Printable(s.Path), int64(s.Writes), sightCount, false)
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

// slotPatch is the own slot of a lock. It is rewritten as it is: its sequence tells one write from the next.
type slotPatch struct {
	lk   *lock
	last layout.Slot // as written last
	buf  []byte
	many []byte
}

func (s *slotPatch) space() layout.Space { return s.lk.area.space }
func (s *slotPatch) at() int64           { return s.space().Geometry.Slot(s.lk.entry.Lock, s.lk.area.host) }

// Write implements patch.
func (s *slotPatch) Write() (took time.Duration, err error) {
	err = s.lk.do(func() error {
		begun := time.Now()
		err := s.lk.publish(func(*layout.Slot) {})
		took, s.last = time.Since(begun), s.lk.area.own
		return err
	})
	return took, err
}

// Read implements patch.
func (s *slotPatch) Read() (time.Duration, error) {
	dev := s.lk.d.dev
	begun := time.Now()
	err := dev.Read(s.buf, s.at())
	took := time.Since(begun)
	if err == nil && !s.shows(s.buf) {
		err = fmt.Errorf("%w, at byte %d of %s", ErrDisturbed, s.at(), dev.Info().Path)
	}
	return took, err
}

// shows tells whether a sector is the slot as it was written last, or later: it may have been found bad and rewritten.
func (s *slotPatch) shows(sector []byte) bool {
	found, err := s.space().DecodeSlot(sector, s.lk.entry.Lock, s.lk.area.host)
	return err == nil && found.Incarnation == s.last.Incarnation && found.Sequence >= s.last.Sequence
}

// ReadMany implements patch.
func (s *slotPatch) ReadMany() (time.Duration, error) {
	begun := time.Now()
	err := s.lk.d.dev.Read(s.many, s.space().Geometry.Slot(s.lk.entry.Lock, 1))
	return time.Since(begun), err
}

// Many implements patch.
func (s *slotPatch) Many() int { return len(s.many) / len(s.buf) }

// SeenBy implements patch.
func (s *slotPatch) SeenBy(other blockdev.Device) (bool, error) {
	if err := other.Read(s.buf, s.at()); err != nil {
		return false, err
	}
	return s.shows(s.buf), nil
}

// Close implements patch.
func (s *slotPatch) Close() error { return nil }

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
