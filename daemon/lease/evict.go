package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// The errors of [Machine.Evict]; compare with errors.Is.
var (
	// ErrNoHost is returned when no host has the id.
	ErrNoHost = errors.New("no host has this id: choose one of those that have joined")
	// ErrChanged is returned when the id shows another incarnation than the one in the call.
	ErrChanged = errors.New("the host has restarted since: look at it again")
	// ErrHasLeft is returned when the host has left.
	ErrHasLeft = errors.New("the host has left: its locks are free")
	// ErrSelf is returned when a host is asked to forget itself.
	ErrSelf = errors.New("a host cannot forget itself: stop it, or ask another host to")
	// ErrJoining is returned when the host has not finished joining.
	ErrJoining = errors.New("the host is joining: it holds nothing; let it finish, or start it again on its machine")
	// ErrDead is returned when the host is known to be dead, and also forgotten if that was
	// requested.
	ErrDead = errors.New("the host is already declared dead: its locks are free")
	// ErrNotLive is returned when this host is not live, or not all hosts read its record yet.
	ErrNotLive = errors.New("this host is not live: ask another one, or wait until it has joined")
	// ErrNoRecord is returned when the host record is unreadable and always was, so that no
	// incarnation can be named.
	ErrNoRecord = errors.New("its host record cannot be read, and this host has not read it before: run bakeryctl check --repair on the device")
	// ErrNoRoom is returned when the own record has no room for another verdict.
	ErrNoRoom = errors.New("this host publishes as many verdicts as it has room for: ask another host")
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
		return ErrNotLive
	}
	if host < 1 || host > len(m.hosts) {
		return ErrNoHost
	}
	h := m.hosts[host-1]
	switch {
	case h.Incarnation == 0 && h.Damaged != 0:
		return ErrNoRecord
	case h.Incarnation == 0:
		return ErrNoHost
	case h.Incarnation != incarnation:
		return ErrChanged
	case h.State == layout.StateLeft:
		return ErrHasLeft
	case host == m.id && forget:
		return ErrSelf
	case host == m.id:
		m.ask(m.id, m.own.Name)
		return nil
	case h.State == layout.StateJoining:
		return ErrJoining
	case h.Gone && (h.Forgotten || !forget):
		return ErrDead
	case !m.named(host, incarnation) && m.now < m.roomAt():
		return ErrNoRoom
	}
	v := layout.Verdict{Host: host, Incarnation: incarnation}
	if forget {
		v.Kind = layout.VerdictForgotten
	}
	m.state(v, true)
	return nil
}
