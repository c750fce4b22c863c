// Package evict has the reasons for which a host is not evicted. It knows no lease. Start reading at
// [ErrNoHost].
package evict

import "errors"

// The errors of Evict of package lease; compare with errors.Is.
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
