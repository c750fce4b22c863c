//go:build integration

package integration

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPausedDaemon: bakeryd is paused for five leases while a busy command runs that ignores
// SIGTERM.
func TestPausedDaemon(t *testing.T) {
	s, a, b := briefPair(t)
	j := s.journal("x")
	before := a.incarnation()
	holder := a.insist("x", "first")
	b.waits("x", "next", a)
	renewed := s.renewed(1)
	a.signal(syscall.SIGSTOP)
	stopped := sinceBoot()
	holder.exits(75)
	next := j.entered("next")
	first, child := j.gone("first"), j.gone("first-child")
	dead := max(first.last, child.last)
	measured(t, "bakeryd SIGSTOPped to last sign of life of its command, lease "+briefLease.String(), dead-stopped)
	measured(t, "bakeryd SIGSTOPped to next holder inside, lease "+briefLease.String(), next.enter-stopped)
	measured(t, "command dead to next holder inside, lease "+briefLease.String(), next.enter-dead)
	require.GreaterOrEqual(t, next.enter, renewed+briefLease+margin(briefLease))
	until(stopped + 10*time.Second)
	resumed := sinceBoot()
	a.signal(syscall.SIGCONT)
	a.rejoins(before)
	measured(t, "bakeryd resumed to host rejoined, lease "+briefLease.String(), sinceBoot()-resumed)
	again := a.waits("x", "again", b)
	j.outside("again")
	b.all(syscall.SIGKILL)
	j.entered("again")
	again.letGo()
	j.exclusive()
}

// TestPausedHost: a whole host is paused, like a virtual machine. When it continues, its lease is
// over.
func TestPausedHost(t *testing.T) {
	s, a, b := briefPair(t)
	j, free := s.journal("x"), s.journal("free")
	before := a.incarnation()
	holder := a.insist("x", "first")
	a.work("x", "behind")
	a.queues("x", 1)
	next := b.waits("x", "next", a)
	renewed := s.renewed(1)
	paused := sinceBoot()
	a.freeze()
	a.work("free", "late") // requested while bakeryd is paused
	entered := j.entered("next")
	measured(t, "host paused to next holder inside, lease "+briefLease.String(), entered.enter-paused)
	require.GreaterOrEqual(t, entered.enter, renewed+briefLease+margin(briefLease))
	resumed := sinceBoot()
	a.thaw()
	first := j.gone("first")
	measured(t, "host resumed to last sign of life of its command", first.last-resumed)
	a.rejoins(before)
	measured(t, "host resumed to host rejoined, lease "+briefLease.String(), sinceBoot()-resumed)
	if late := free.find("late"); late != nil {
		require.Greater(t, late.enter, resumed)
	}
	require.Equal(t, 1, a.lock("-w", "0.1", "x", "--", "true").code)
	j.outside("behind")
	next.letGo()
	require.Zero(t, a.lock("-w", "120", "x", "--", "true").code)
	for _, after := range j.stays() {
		if after.enter > entered.enter {
			require.Greater(t, after.token, entered.token)
			require.Greater(t, after.enter, j.find("next").last)
		}
	}
	holder.exits(75)
}

// TestPausedWrapper: a paused wrapper does not lose the lock while bakeryd renews the lease.
func TestPausedWrapper(t *testing.T) {
	s, a, b := briefPair(t)
	j := s.journal("x")
	holder := a.work("x", "first")
	j.entered("first")
	holder.signal(syscall.SIGSTOP)
	b.waits("x", "next", a)
	until(sinceBoot() + 2*briefLease)
	j.outside("next")
	require.NoError(t, holder.stdin.Close())
	first := j.gone("first")
	require.Zero(t, first.term)
	holder.signal(syscall.SIGCONT)
	j.entered("next")
	holder.exits(0)
	j.exclusive()
}

// TestWaiter_Stopped_LockPassesOn: a wrapper that is stopped while it waits does not get the lock.
// When it continues, it waits again.
func TestWaiter_Stopped_LockPassesOn(t *testing.T) {
	s, a, b := briefPair(t)
	j := s.journal("x")
	first := a.work("x", "first")
	j.entered("first")
	suspended := a.work("x", "suspended")
	a.queues("x", 1)
	suspended.signal(syscall.SIGSTOP)
	local := a.work("x", "local")
	a.queues("x", 2)
	remote := b.waits("x", "remote", a)
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
