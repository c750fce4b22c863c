package locks

import (
	"context"
	"fmt"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// readAllSlots reads every slot of a lock, and unreadable ones up to slotTries times, because they
// may be being written. Each slot is as it was at some time since the call. It returns
// ErrUnreadable, naming the host.
func (m *Manager) readAllSlots(ctx context.Context, lock int) ([]layout.Slot, error) {
	var whole []layout.Slot
	missing := map[int]error{}
	for try := 1; ; try++ {
		slots, bad, err := m.disk.ReadSlots(m.disk.Dev, lock, m.SlotCount())
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
		if err := retry.Pause(ctx, m.disk.Retry()); err != nil {
			return nil, context.Cause(ctx)
		}
	}
}
