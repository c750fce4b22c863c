//go:build integration

package integration

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBreakablePath: both paths read and write the same data.
func TestBreakablePath(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	a, b := s.machine("1"), s.host(2)
	path := a.breakable()
	path.tell("delay 2ms all")
	a.up()
	for range 3 {
		holder, first := a.holds("x")
		next := b.take("x")
		a.sees(b, "x")
		next.outside()
		holder.letGo()
		require.Greater(t, next.entered(), first)
		require.Equal(t, 1, a.lock("-n", "x", "--", "true").code)
		next.letGo()
	}
	path.neverTwice()
}

// TestHangingDevice: a host's IO is stuck in the kernel. Its holders are stopped by the end of the
// lease, and then others enter. When the IO returns and late writes land, the host joins again by
// itself.
func TestHangingDevice(t *testing.T) { losesDevice(t, "hang", "all", "reads", "writes") }

// TestFailingDevice: a host's IO fails, as on a multipath device without paths.
func TestFailingDevice(t *testing.T) { losesDevice(t, "fail", "all", "writes") }

func losesDevice(t *testing.T, how string, requests ...string) {
	t.Parallel()
	for _, what := range requests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := briefSpace(t)
			a, path := s.breakableHost(1)
			b := s.host(2)
			before := a.incarnation()
			j := s.journal("x")
			holder := a.insist("x", "first")
			b.settles(a, "x")
			next := b.waits("x", "next", a)
			renewed := s.renewed(1)
			lost := sinceBoot()
			path.trouble(how, what)
			if how == "hang" {
				a.work("free", "late")
				a.stuck()
			}
			entered := j.entered("next")
			holder.exits(75)
			first, child := j.gone("first"), j.gone("first-child")
			measured(t, what+" "+how+" to last sign of life of the command, lease "+briefLease.String(), max(first.last, child.last)-lost)
			measured(t, what+" "+how+" to next holder inside, lease "+briefLease.String(), entered.enter-lost)
			require.GreaterOrEqual(t, entered.enter, renewed+briefLease+margin(briefLease))
			require.True(t, a.running(), "bakeryd has ended: %s", a.said())
			if how == "hang" {
				a.showsHang()
			}
			repaired := sinceBoot()
			path.repair()
			a.rejoins(before)
			measured(t, what+" work again to host rejoined, lease "+briefLease.String(), sinceBoot()-repaired)
			path.neverTwice()
			require.Equal(t, 1, a.lock("-w", "0.1", "x", "--", "true").code)
			next.letGo()
			require.Zero(t, a.lock("-w", "120", "x", "--", "true").code)
			require.Zero(t, b.lock("-w", "120", "x", "--", "true").code)
			j.exclusive()
		})
	}
}

// showsHang checks that the host reports the hanging device, and grants nothing.
func (h *host) showsHang() {
	h.t.Helper()
	require.Contains(h.t, h.said(), "hangs", "bakeryd's log")
	if report, err := h.view(); err != nil { // status has to read the disk, too
		require.ErrorContains(h.t, err, "hangs")
		require.ErrorContains(h.t, err, "lost its lease")
	} else {
		require.NotEqual(h.t, "live", report.ThisHost.State)
	}
	require.Nil(h.t, h.s.journal("free").find("late"), "a lock was granted on a device that hangs")
	require.NotZero(h.t, h.lock("-w", "0.2", "free", "--", "true").code)
}

// TestShortHang: IO that returns in time has no effect.
func TestShortHang(t *testing.T) {
	t.Parallel()
	s := briefSpace(t, leased(6*time.Second))
	a := s.machine("1")
	path := a.breakable()
	a.up()
	before := a.incarnation()
	j := s.journal("x")
	holder := a.work("x", "first")
	j.entered("first")
	s.renewed(1)
	path.trouble("hang", "all")
	until(sinceBoot() + 2*time.Second)
	path.repair()
	s.renewed(1)
	until(sinceBoot() + 6*time.Second)
	require.Equal(t, before, a.incarnation())
	holder.letGo()
	require.Zero(t, j.find("first").term, "the command got SIGTERM")
	path.neverTwice()
}

// TestOrphanOfAHangingDevice: without the wrapper bakeryd stops the command.
func TestOrphanOfAHangingDevice(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	a, path := s.breakableHost(1)
	b := s.host(2)
	before := a.incarnation()
	j := s.journal("x")
	holder := a.insist("x", "first")
	b.settles(a, "x")
	b.waits("x", "next", a)
	holder.signal(syscall.SIGKILL)
	holder.exits(-1)
	eventually(t, "the hold is an orphan", func() bool { return a.orphaned("x") })
	renewed := s.renewed(1)
	hung := sinceBoot()
	path.trouble("hang", "all")
	next := j.entered("next")
	first, child := j.gone("first"), j.gone("first-child")
	measured(t, "device hangs to last sign of life of an orphan, lease "+briefLease.String(), max(first.last, child.last)-hung)
	require.GreaterOrEqual(t, next.enter, renewed+briefLease+margin(briefLease))
	path.repair()
	a.rejoins(before)
	path.neverTwice()
	j.exclusive()
}

// TestStuckPredecessor: a killed bakeryd hangs in the kernel with a write in flight. The next one
// does not write to that place, even by another path to the disk.
func TestStuckPredecessor(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	a, path := s.breakableHost(1)
	b := s.host(2)
	j := s.firstAndNext(a, b)
	path.trouble("hang", "writes")
	a.stuck()
	a.signal(syscall.SIGKILL)
	next := j.entered("next")
	successor := s.machine("1")
	successor.dir = a.dir
	successor.start()
	successor.exits(69)
	require.Contains(t, successor.said(), "another process on this machine has the host id 1")
	require.True(t, a.running(), "bakeryd was not stuck")
	repaired := sinceBoot()
	path.repair()
	a.exits(-1)
	successor.up()
	measured(t, "device works again to successor of a stuck bakeryd serving, lease "+briefLease.String(), sinceBoot()-repaired)
	require.Equal(t, 1, successor.lock("-n", "x", "--", "true").code)
	require.True(t, next.alive())
	require.Zero(t, successor.lock("-w", "120", "y", "--", "true").code)
	path.neverTwice()
	j.exclusive()
}
