package measuring

import (
	"context"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/layout"
)

// MeasureSlot measures the device by rewriting the own slot of the lock ProbeLock, which it creates.
func (m *Meter) MeasureSlot(ctx context.Context, device string, o measure.Options) (*measure.Measurement, error) {
	lk, err := m.locks.Find(ctx, locks.Request{Name: ProbeLock})
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", ProbeLock, err)
	}
	g := m.disk.SB.Geometry
	s := &slotPatch{meter: m, lk: lk, buf: blockdev.Alloc(g.Stride), many: blockdev.Alloc(min(measure.ManySlots, g.Hosts) * g.Stride)}
	done, err := measure.Run(ctx, s, o)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", device, err)
	}
	done.Lockspace = true
	return done, nil
}

// slotPatch is the own slot of a lock. It is rewritten as it is; the sequence distinguishes the
// writes.
type slotPatch struct {
	meter *Meter
	lk    *locks.Lock
	last  layout.Slot // as last written
	buf   []byte
	many  []byte
}

func (s *slotPatch) space() layout.Space { return s.meter.disk.SB.Space() }
func (s *slotPatch) at() int64           { return s.space().Geometry.Slot(s.lk.Entry.Lock, s.meter.mem.ID()) }

// Write implements patch.
func (s *slotPatch) Write() (took time.Duration, err error) {
	err = s.lk.WithSlot(func(slot locks.SlotTx) error {
		begun := time.Now()
		err := slot.Publish(func(*layout.Slot) {})
		took, s.last = time.Since(begun), slot.Own()
		return err
	})
	return took, err
}

// Read implements patch.
func (s *slotPatch) Read() (time.Duration, error) {
	dev := s.meter.disk.Dev
	begun := time.Now()
	err := dev.Read(s.buf, s.at())
	took := time.Since(begun)
	if err == nil && !s.shows(s.buf) {
		err = fmt.Errorf("%w, at byte %d of %s", measure.ErrDisturbed, s.at(), dev.Info().Path)
	}
	return took, err
}

// shows reports whether a sector is the slot as last written, or later: it may have been repaired
// since.
func (s *slotPatch) shows(sector []byte) bool {
	found, err := s.space().DecodeSlot(sector, s.lk.Entry.Lock, s.meter.mem.ID())
	return err == nil && found.Incarnation == s.last.Incarnation && found.Sequence >= s.last.Sequence
}

// ReadMany implements patch.
func (s *slotPatch) ReadMany() (time.Duration, error) {
	begun := time.Now()
	err := s.meter.disk.Dev.Read(s.many, s.space().Geometry.Slot(s.lk.Entry.Lock, 1))
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

// ProbeLock is the lock whose slot a probe writes.
const ProbeLock = "probe"
