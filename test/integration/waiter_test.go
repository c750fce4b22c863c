//go:build integration

package integration

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWaiter_Stopped_LockPassesOn: a wrapper that is stopped while it waits does not hold the lock.
// It waits again when it runs again.
func TestWaiter_Stopped_LockPassesOn(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	a, b := s.host(1), s.host(2)
	j := s.journal("x")
	first := a.work("x", "first")
	j.entered("first")
	suspended := a.work("x", "suspended")
	a.queues("x", 1)
	suspended.signal(syscall.SIGSTOP)
	local := a.work("x", "local")
	a.queues("x", 2)
	remote := b.work("x", "remote")
	a.sees(b, "x")
	released := sinceBoot()
	first.letGo()
	entered := j.entered("local")
	measured(t, "grant to a stopped waiter to the next command, lease "+briefLease.String(), entered.enter-released)
	require.True(t, strings.Contains(a.said(), "client does not run, passing its lock on"), a.said())
	local.letGo()
	j.entered("remote")
	j.outside("suspended")
	suspended.signal(syscall.SIGCONT)
	a.queues("x", 1)
	remote.letGo()
	j.entered("suspended")
	suspended.letGo()
	j.exclusive()
}
