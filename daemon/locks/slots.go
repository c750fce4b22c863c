package locks

import (
	"context"
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// slotTries is how often an unreadable slot is read, because it may be being written.
const slotTries = 10

// readSlots reads the slots of a lock outside its driver, for the fields that the protocol does not
// need. The slot of host i is slots[i-1]; bad[i-1] is the error if it is unreadable.
func (m *Manager) readSlots(dev blockdev.Device, lock int) (slots []layout.Slot, bad []error, err error) {
	g, n := m.disk.SB.Geometry, max(m.mem.Highest(), m.mem.ID())
	buf := lockspace.Pool.Get(n * g.Stride)
	defer lockspace.Pool.Put(buf)
	if bad, err = lockspace.ReadRecords(dev, buf, g.Slot(lock, 1), g.Stride); err != nil {
		return nil, nil, fmt.Errorf("read the slots of lock %d: %w", lock, err)
	}
	slots = make([]layout.Slot, n)
	for i := range slots {
		if bad[i] == nil {
			slots[i], bad[i] = m.disk.SB.Space().DecodeSlot(buf[i*g.Stride:(i+1)*g.Stride], lock, i+1)
		}
	}
	return slots, bad, nil
}

// readAllSlots reads every slot of a lock, and unreadable ones up to slotTries times, because they
// may be being written. Each slot is as it was at some time since the call. It returns
// ErrUnreadable, naming the host.
func (m *Manager) readAllSlots(ctx context.Context, lock int) ([]layout.Slot, error) {
	var whole []layout.Slot
	missing := map[int]error{}
	for try := 1; ; try++ {
		slots, bad, err := m.readSlots(m.disk.Dev, lock)
		if err != nil {
			return nil, err
		}
		for i := len(whole); i < len(slots); i++ {
			whole, missing[i] = append(whole, layout.Slot{}), nil
		}
		for i := range missing {
			if missing[i] = bad[i]; bad[i] == nil {
				whole[i] = slots[i]
				delete(missing, i)
			}
		}
		if len(missing) == 0 {
			return whole, nil
		}
		for i := range missing {
			m.mem.HeldUp(layout.Complaint{Host: i + 1, Lock: lock}, false)
		}
		if try == slotTries {
			for i, err := range missing {
				return nil, fmt.Errorf("%w (start bakeryd on host %d, which rewrites it): %w", api.ErrUnreadable, i+1, err)
			}
		}
		if err := retry.Pause(ctx, m.disk.retry()); err != nil {
			return nil, context.Cause(ctx)
		}
	}
}
