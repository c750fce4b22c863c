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

// MeasureSlot measures the device by rewriting the own slot of the lock ProbeLock. It creates the lock, and removes it.
func (m *Meter) MeasureSlot(ctx context.Context, device string, o measure.Options) (*measure.Measurement, error) {
	lk, created, err := m.ownLock(ctx, ProbeLock)
	if err != nil {
		return nil, err
	}
	if created {
		defer m.remove(ProbeLock)
	}
	space, number, host := m.disk.SB.Space(), lk.Entry.Lock, m.mem.ID()
	g := space.Geometry
	var last layout.Slot // as last written
	done, err := measure.Run(ctx, &measure.Patch{
		Dev: m.disk.Dev, At: g.Slot(number, host), Block: blockdev.Alloc(g.Stride),
		ManyAt: g.Slot(number, 1), Many: blockdev.Alloc(min(measure.ManySlots, g.Hosts) * g.Stride),
		// The slot is rewritten as it is; the sequence distinguishes the writes.
		Write: func() (took time.Duration, err error) {
			err = lk.WithSlot(func(slot locks.SlotTx) error {
				begun := time.Now()
				err := slot.Publish(func(*layout.Slot) {})
				took, last = time.Since(begun), slot.Own()
				return err
			})
			return took, err
		},
		// It may have been repaired since, and then has a later sequence.
		Shows: func(block []byte) bool {
			found, err := space.DecodeSlot(block, number, host)
			return err == nil && found.Incarnation == last.Incarnation && found.Sequence >= last.Sequence
		},
	}, o)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", device, err)
	}
	done.Lockspace = true
	return done, nil
}

// ProbeLock is the lock whose slot a probe writes.
const ProbeLock = "probe"
