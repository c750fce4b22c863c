package lease

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/evict"
	"github.com/bakeryd/bakeryd/layout"
)

// Evict handles an operator's command about an incarnation of a host. A silent host is declared
// dead, whatever the policy; with forget its id may be given to another machine; see [Declared].
// A host that still renews is asked to leave; see [Wished]. A fresh read decides which, and then
// it is published.
//
// A joining host is refused: no time proves that its claim will not go live (JOINERS), and it
// holds no lock.
func (m *Machine) Evict(now time.Duration, host int, incarnation uint64, forget bool) ([]Action, error) {
	m.begin(now)
	err := m.evict(host, incarnation, forget)
	if err != nil {
		err = fmt.Errorf("evict host %d: %w", host, err)
	}
	return m.end(), err
}

func (m *Machine) evict(host int, incarnation uint64, forget bool) error {
	if m.phase != live || !m.ready { // HEARD
		return evict.ErrNotLive
	}
	if host < 1 || host > len(m.hosts) {
		return evict.ErrNoHost
	}
	h := m.hosts[host-1]
	switch {
	case h.Incarnation == 0 && h.Damaged != 0:
		return evict.ErrNoRecord
	case h.Incarnation == 0:
		return evict.ErrNoHost
	case h.Incarnation != incarnation:
		return evict.ErrChanged
	case h.State == layout.StateLeft:
		return evict.ErrHasLeft
	case host == m.id && forget:
		return evict.ErrSelf
	case host == m.id:
		m.ask(m.id, m.own.Name)
		return nil
	case h.State == layout.StateJoining:
		return evict.ErrJoining
	case h.Gone && (h.Forgotten || !forget):
		return evict.ErrDead
	case !m.named(host, incarnation) && m.now < m.roomAt():
		return evict.ErrNoRoom
	}
	v := layout.Verdict{Host: host, Incarnation: incarnation}
	if forget {
		v.Kind = layout.VerdictForgotten
	}
	m.state(v, true)
	return nil
}
