//go:build integration

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestRestart: bakeryd restarts with five locks held and clients waiting. No client is affected.
func TestRestart(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*host){
		"SIGKILL": (*host).crash,
		"SIGTERM": (*host).leave,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			restart(t, how, end)
		})
	}
}

func restart(t *testing.T, how string, end func(*host)) {
	s := briefSpace(t)
	a, b, c := s.host(1), s.host(2), s.host(3)
	incarnation := a.incarnation()
	held := map[string]*process{}
	for i := range 5 {
		lock := fmt.Sprint("held-", i)
		held[lock] = a.work(lock, "holder")
		s.journal(lock).entered("holder")
	}
	for lock := range held {
		b.settles(a, lock)
	}
	// Two of its clients wait for its own locks, and one on another host.
	var waiters []*process
	own, other := s.journal("held-0"), s.journal("other")
	for _, name := range []string{"own-1", "own-2"} {
		waiters = append(waiters, a.work("held-0", name))
		a.queues("held-0", len(waiters))
	}
	c.work("held-1", "elsewhere")
	a.sees(c, "held-1")
	// Three for another host's lock, with a third host behind them.
	otherHolder := b.work("other", "holder")
	other.entered("holder")
	for i, name := range []string{"other-1", "other-2", "other-3"} {
		waiters = append(waiters, a.work("other", name))
		a.queues("other", i+1)
	}
	b.sees(a, "other")
	c.waits("other", "behind", b)

	ended := sinceBoot()
	end(a)
	a.up()
	measured(t, "bakeryd ended by "+how+" to serving again, lease "+briefLease.String(), sinceBoot()-ended)
	require.Equal(t, incarnation, a.incarnation())
	a.queues("held-0", 2)
	a.queues("other", 3)
	until(ended + 2*briefLease)
	for lock, p := range held {
		require.True(t, p.running(), "%s was lost: %s", lock, p.said())
		require.Empty(t, p.said())
		stay := s.journal(lock).find("holder")
		require.Zero(t, stay.term, "%s was told to stop", lock)
		holders := a.report(lock).Holders
		require.Len(t, holders, 1)
		require.Equal(t, stay.token, holders[0].Token)
		require.Equal(t, 1, c.lock("-n", lock, "--", "true").code)
	}
	for _, p := range waiters {
		require.True(t, p.running(), "a place in the queue was lost: %s", p.said())
	}
	for _, name := range []string{"own-1", "own-2"} {
		own.outside(name)
	}

	held["held-0"].letGo()
	for i, name := range []string{"own-1", "own-2"} {
		own.entered(name)
		if i == 0 {
			own.outside("own-2")
		}
		waiters[i].letGo()
	}
	otherHolder.letGo()
	for i, name := range []string{"other-1", "other-2", "other-3"} {
		other.entered(name)
		if i == 0 {
			other.outside("other-2")
			other.outside("behind")
		}
		waiters[2+i].letGo()
	}
	other.entered("behind")
	require.Less(t, other.find("other-1").enter, other.find("behind").enter)
	for i := 1; i < 5; i++ {
		held[fmt.Sprint("held-", i)].letGo()
	}
	elsewhere := s.journal("held-1").entered("elsewhere")
	require.Greater(t, elsewhere.token, s.journal("held-1").find("holder").token)
	for lock := range held {
		s.journal(lock).exclusive()
	}
	other.exclusive()
}

// TestHoldGoneWhileDown: a hold whose processes end while bakeryd is down is released when bakeryd
// is back, long before the lease ends.
func TestHoldGoneWhileDown(t *testing.T) {
	t.Parallel()
	s := briefSpace(t, "--lease", "60s")
	a, b := s.host(1), s.host(2)
	j := s.journal("x")
	incarnation := a.incarnation()
	holder := a.work("x", "first")
	first := j.entered("first")
	waiter := a.work("x", "waiter")
	a.queues("x", 1)
	b.waits("x", "next", a)
	a.crash()
	holder.signal(syscall.SIGKILL)
	require.NoError(t, syscall.Kill(first.pid, syscall.SIGKILL))
	j.gone("first")
	waiter.signal(syscall.SIGKILL)
	waiter.exits(-1)
	j.outside("next")
	up := sinceBoot()
	a.up()
	next := j.entered("next")
	measured(t, "bakeryd started to its dead client's lock with the next holder, lease 60 s", next.enter-up)
	require.Less(t, next.enter-up, 30*time.Second)
	require.Equal(t, incarnation, a.incarnation())
	j.outside("waiter")
	j.exclusive()
}

// orphaned reports whether bakeryd shows that a command without a wrapper holds a lock.
func (h *host) orphaned(name string) bool {
	h.t.Helper()
	holders := h.report(name).Holders
	return len(holders) == 1 && holders[0].Orphan
}

// TestOrphan: a command whose wrapper is killed keeps its lock until it ends, also across an end of
// bakeryd, whichever ends first.
func TestOrphan(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(a *host, wrapper *process){
		"wrapper first": func(a *host, wrapper *process) {
			wrapper.signal(syscall.SIGKILL)
			wrapper.exits(-1)
			eventually(a.t, "the hold is an orphan", func() bool { return a.orphaned("x") })
			a.crash()
		},
		"bakeryd first": func(a *host, wrapper *process) {
			a.crash()
			wrapper.signal(syscall.SIGKILL)
			wrapper.exits(-1)
		},
		"bakeryd by SIGTERM": func(a *host, wrapper *process) {
			wrapper.signal(syscall.SIGKILL)
			wrapper.exits(-1)
			a.leave()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, a, b := briefPair(t)
			j := s.journal("x")
			incarnation := a.incarnation()
			holder := a.work("x", "first")
			first := j.entered("first")
			require.False(t, a.orphaned("x"))
			b.settles(a, "x")
			b.waits("x", "next", a)
			kill(a, holder)
			a.up()
			require.Equal(t, incarnation, a.incarnation())
			up := sinceBoot()
			eventually(t, "the hold is an orphan", func() bool { return a.orphaned("x") })
			measured(t, "bakeryd started to a hold reported as orphan, lease "+briefLease.String(), sinceBoot()-up)
			until(up + 2*briefLease)
			require.True(t, a.orphaned("x"))
			require.True(t, first.alive())
			require.Zero(t, j.find("first").term)
			j.outside("next")
			require.NoError(t, holder.stdin.Close())
			first = j.gone("first")
			next := j.entered("next")
			measured(t, "orphan ended to next holder inside", next.enter-first.last)
			j.exclusive()
		})
	}
}

// TestRestartTooLate: bakeryd restarts after its lease, and its state is void.
func TestRestartTooLate(t *testing.T) {
	t.Parallel()
	lease := 3 * briefLease // the next holder must keep the lock while the machine stalls
	s := briefSpace(t, "--lease", lease.String())
	a, b := s.host(1), s.host(2)
	j := s.journal("x")
	incarnation := a.incarnation()
	holder := a.work("x", "first")
	j.entered("first")
	b.asks("x", "--", self(), roleWorker, j.path, "next")
	a.sees(b, "x")
	a.crash()
	holder.exits(75)
	j.entered("next")
	began := sinceBoot()
	a.up()
	measured(t, "bakeryd started after its lease was over to serving, lease "+lease.String(), sinceBoot()-began)
	require.NotEqual(t, incarnation, a.incarnation())
	again := a.waits("x", "again", b)
	j.outside("again")
	b.all(syscall.SIGKILL)
	j.entered("again")
	again.letGo()
	j.exclusive()
}

// TestModeAndValueOverARestart: after a restart bakeryd knows the mode of a hold, and then executes
// the requests that the command made meanwhile.
func TestModeAndValueOverARestart(t *testing.T) {
	t.Parallel()
	s := briefSpace(t, "--lease", "30s")
	a, b := s.host(1), s.host(2)
	script := strings.ReplaceAll(`ctl mode shared && echo shared
		read line
		ctl mode exclusive && ctl value set alone && echo alone
		read line`, "ctl", a.programs.bakeryctl)
	p := a.takeFor("x", script)
	require.Equal(t, "shared", p.line())
	a.crash()
	a.up()
	holders := a.report("x").Holders
	require.Len(t, holders, 1)
	require.Equal(t, layout.Shared, holders[0].Mode)
	require.Equal(t, 0, b.lock("-n", "-s", "x", "--", "true").code)
	require.Equal(t, 1, b.lock("-n", "x", "--", "true").code)

	a.crash()
	_, err := p.stdin.WriteString("\n")
	require.NoError(t, err)
	a.up()
	require.Equal(t, "alone", p.line())
	require.Equal(t, 1, b.lock("-n", "-s", "x", "--", "true").code)
	r := b.ctl("value", "get", "x")
	require.Equal(t, 0, r.code)
	require.Equal(t, "alone", r.stdout)
	p.letGo()
	require.Empty(t, p.said(), "clients report nothing")
	require.Equal(t, 0, b.lock("-n", "x", "--", "true").code)
	require.Equal(t, "alone", b.ctl("value", "get", "x").stdout)
}
