//go:build integration

package integration

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// Faults, and the tests that show their effects.
//
//	command exits or is killed                   TestRequests (in one write), TestLockExitCodes
//	                                             of cmd/bakeryctl
//	wrapper SIGKILLed                            TestKilledWrapper, TestOrphan; stopped: TestPausedWrapper
//	bakeryd SIGKILLed, restarted within L        TestRestart, TestHoldGoneWhileDown, TestOrphan
//	bakeryd stopped by SIGTERM, restarted        TestRestart
//	bakeryd SIGKILLed, not restarted             TestDaemonGone
//	restarted when the lease is over             TestRestartTooLate
//	host power loss or panic                     TestPowerLoss
//	host reboots faster than that                TestReboot
//	SIGSTOP or pause of the host beyond L        TestPausedHost, and of bakeryd alone TestPausedDaemon
//	device hangs                                 TestHangingDevice, TestShortHang, TestFailingDevice, TestOrphanOfAHangingDevice,
//	                                             TestStuckPredecessor
//	one sector unreadable or corrupt             TestDamagedSlot, TestDamagedHostRecord, TestDamagedSlotOfTheDead
//	one of several disks fails, hangs or is slow TestSeveral_MemberFails_AllContinue and others
//	one of several disks is wiped or restored    TestSeveral_MemberIsWiped_StaysDown, TestSeveral_MemberIsRestored_StaysDown
//	these, one after the other                   TestSeveral_FaultsAtRandom_AllContinue
//	two hosts configured with one id             TestOneIDTwice, TestOneIDAtOnce (of one machine id, too)
//	device replaced or re-formatted              TestReformatUnderARunningDaemon
//	area or directory full, name, permits        TestDeviceTooSmall, TestAPIRefusesBadRequests and
//	                                             TestNamesAndLimits of package daemon
//	evict, and a fence agent                     TestEvict_SilentHost_ReleasesItsLocks,
//	                                             TestEvict_LiveHost_LeavesFirst, TestFence, TestFenceTakenOver
//	all of these in any order                    the soak

// margin is how much longer than its lease a host must be silent to be declared dead.
func margin(lease time.Duration) time.Duration { return lease / 5 }

// grace is how long before the end of its lease a holder is stopped.
func grace(lease time.Duration) time.Duration { return lease / 6 }

// TestPowerLoss: others enter when the lost host's lease is certainly over.
func TestPowerLoss(t *testing.T) {
	s, a, b := briefPair(t)
	j := s.journal("x")
	a.work("x", "first")
	j.entered("first")
	a.work("x", "behind")
	a.queues("x", 1)
	b.waits("x", "next", a)
	renewed := s.renewed(1)
	off := a.powerOff()
	next := j.entered("next")
	measured(t, "host SIGKILLed to next holder inside, lease "+briefLease.String(), next.enter-off)
	earliest := renewed + briefLease + margin(briefLease)
	require.GreaterOrEqual(t, next.enter, earliest, "%v too early", earliest-next.enter)

	// After the reboot it is another incarnation.
	a.up()
	again := a.waits("x", "again", b)
	j.outside("again")
	j.outside("behind")
	b.all(syscall.SIGKILL)
	j.entered("again")
	again.letGo()
	j.exclusive()
}

// TestDaemonGone: bakeryd is killed and does not come back. The wrapper stops its command and the
// command's child when the lease ends. Both record SIGTERM, so the grace must be longer than the
// pauses of a busy machine.
func TestDaemonGone(t *testing.T) {
	t.Parallel()
	lease := 3 * briefLease
	s := briefSpace(t, "--lease", lease.String())
	a, b := s.host(1), s.host(2)
	j := s.journal("x")
	holder := a.insist("x", "first")
	b.settles(a, "x")
	b.waits("x", "next", a)
	deadline := sinceBoot() + time.Duration(a.status().ThisHost.LeaseLeftMS)*time.Millisecond // or slightly later
	renewed := s.renewed(1)                                                                   // so the wrapper knows that deadline
	a.crash()
	crashed := sinceBoot()
	require.Equal(t, 69, a.lock("x", "--", "true").code)
	holder.exits(75)
	require.Contains(t, holder.said(), `"x"`)
	for _, name := range []string{"first", "first-child"} {
		first := j.gone(name)
		measured(t, "bakeryd SIGKILLed to SIGTERM of "+name+", lease "+lease.String(), first.term-crashed)
		measured(t, "bakeryd SIGKILLed to last sign of life of "+name+", lease "+lease.String(), first.last-crashed)
		require.GreaterOrEqual(t, first.term, deadline-grace(lease), "SIGTERM came too early")
		require.LessOrEqual(t, first.term, first.last)
	}
	next := j.entered("next")
	measured(t, "bakeryd SIGKILLed to next holder inside, lease "+lease.String(), next.enter-crashed)
	require.GreaterOrEqual(t, next.enter, renewed+lease+margin(lease))
	j.exclusive()
}

// TestReboot: a host that reboots within its lease does not shorten it, because a machine with a
// copied machine id would look the same. It does not have its locks.
func TestReboot(t *testing.T) {
	s, a, b := briefPair(t)
	j := s.firstAndNext(a, b)
	before := a.incarnation()
	renewed := s.renewed(1)
	off := a.powerOff()
	a.reboot()
	a.start()
	next := j.entered("next")
	measured(t, "host SIGKILLed and rebooted at once to next holder inside, lease "+briefLease.String(), next.enter-off)
	require.GreaterOrEqual(t, next.enter, renewed+briefLease+margin(briefLease))
	a.ready()
	measured(t, "host SIGKILLed and rebooted immediately to host rejoined, lease "+briefLease.String(), sinceBoot()-off)
	require.NotEqual(t, before, a.incarnation())
	require.Equal(t, 1, a.lock("-n", "x", "--", "true").code)
	require.Zero(t, a.lock("y", "--", "true").code)
	j.exclusive()
}

// TestDamagedSlotOfTheDead: an unreadable slot of a dead host counts as idle, and its last token as
// possibly great.
func TestDamagedSlotOfTheDead(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	s.damaged = true
	a, b := s.host(1), s.host(2)
	j := s.journal("x")
	a.work("x", "first")
	first := j.entered("first")
	b.settles(a, "x")
	slot := s.geo.Slot(b.report("x").Number, 1)
	b.waits("x", "next", a)
	a.powerOff()
	s.damage(slot)
	require.Greater(t, j.entered("next").token, first.token)
	j.exclusive()
	// Its owner repairs it.
	a.up()
	require.Equal(t, 1, a.lock("-w", "0.1", "x", "--", "true").code)
	eventually(t, "the slot is repaired", func() bool { return s.slot(b.report("x").Number, 1).Error == "" })
	require.Equal(t, layout.Idle, s.slot(b.report("x").Number, 1).Record.Phase)
}

// TestSemaphoreOfDeadHost: the permit of a dead host becomes free in time; until then the others
// share the rest.
func TestSemaphoreOfDeadHost(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	hosts := s.hosts(3)
	require.Zero(t, hosts[0].ctl("create", "reboot", "--permits", "2").code)
	dies, _ := hosts[2].holds("reboot")
	stays, _ := hosts[0].holds("reboot")
	next := hosts[1].take("reboot")
	hosts[0].sees(hosts[1], "reboot")
	next.outside()
	dies.signal(syscall.SIGKILL)
	hosts[2].all(syscall.SIGKILL)
	next.entered()
	next.letGo()
	stays.letGo()
}
