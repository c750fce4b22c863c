//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// Faults that stay: one host or one sector is faulty until the end of the test, and all other hosts
// must still get every lock and be able to join. Each test logs a row of the table "Faults that
// stay" in packaging/docs/failures.md: the fault, the promised bound and the measured time. A busy
// machine exceeds the bound, so a test fails only at standingLimit.

var (
	standingLease = standstill.Outlives(2 * time.Second)
	standingLimit = 20 * standingLease
	standingTimes = timing.Times{Lease: standingLease}

	// noticed is the bound of what needs one more read of the host table.
	noticed = standingTimes.Alive()
	// silence is the bound of what waits until a record has not changed for long enough.
	silence = standingTimes.Dead() + noticed
	// blind is the bound of what waits until a known host's record was unreadable for long enough.
	// abandoned is that of an unknown host, which may have a watchdog.
	blind     = standingTimes.Blind() + noticed
	abandoned = blind + standingTimes.MaxWatchdog()
	// stuck is the bound of what waits until a host gives up its lease because of a hanging IO.
	stuck = standingTimes.Lease + silence
)

// deafHolder is a command that only the end of the lease stops: for one that obeys SIGTERM the slot
// becomes idle before, if it can be written.
const deafHolder = `trap '' TERM; echo $BAKERY_TOKEN; read line`

// standingSpace creates a lockspace in memory in which records may stay damaged.
func standingSpace(t *testing.T) *space {
	t.Helper()
	t.Parallel()
	s := briefSpace(t, "--lease", standingLease.String())
	s.damaged = true
	return s
}

// standingHold creates such a lockspace with two running hosts, of which host 2 holds lock x.
func standingHold(t *testing.T) (s *space, a, b *host) {
	t.Helper()
	s = standingSpace(t)
	a, b = s.host(1), s.host(2)
	b.take("x").entered()
	a.settles(b, "x")
	return s, a, b
}

// bounded logs a row of the table: a fault, its bound, and the time since its start.
func bounded(t *testing.T, fault string, bound, since time.Duration) {
	t.Helper()
	t.Logf("| %s | %.1f s | %.1f s |", fault, bound.Seconds(), (sinceBoot() - since).Seconds())
}

// within waits for a condition, at most for the limit.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := sinceBoot() + standingLimit; !holds(); time.Sleep(2 * time.Millisecond) {
		if sinceBoot() > deadline {
			t.Fatalf("not within %v: %s", standingLimit, what)
		}
	}
}

// waiter starts a client that takes a lock, or gives up at the limit.
func (h *host) waiter(name string) *process {
	h.t.Helper()
	return h.asks("-w", fmt.Sprint(standingLimit.Seconds()), name, "--", "true")
}

// gets waits until a client of the host has had the lock.
func (h *host) gets(name string) {
	h.t.Helper()
	h.waiter(name).exits(0)
}

// fresh starts a host, and waits until it serves and a client of it has had a lock.
func (h *host) fresh() {
	h.t.Helper()
	h.start()
	h.serves()
	h.gets("fresh-" + h.id)
}

func (h *host) serves() {
	h.t.Helper()
	within(h.t, "host "+h.id+" serves", func() bool {
		require.True(h.t, h.running(), "bakeryd has ended: %s", h.said())
		return h.serving()
	})
}

// declares waits until a host shows another one as dead.
func (h *host) declares(dead *host) {
	h.t.Helper()
	within(h.t, "host "+dead.id+" is declared dead", func() bool {
		return slices.ContainsFunc(h.status().Hosts, func(r report.Host) bool { return fmt.Sprint(r.ID) == dead.id && r.Dead })
	})
}

// joining waits until the record of a host says joining.
func (s *space) joining(id int) {
	s.t.Helper()
	within(s.t, fmt.Sprintf("host %d is joining", id), func() bool {
		d := s.hostRecord(id)
		return d.Error == "" && d.Record.State == layout.StateJoining
	})
}

// badHost starts a fault of a host's record, on one path.
func (p *faultyPath) badHost(s *space, how, what string, id int) {
	p.t.Helper()
	at := s.geo.Host(id)
	p.trouble(how, fmt.Sprintf("%s %d %d", what, at, at+int64(s.geo.Stride)))
}

// badLock starts a fault of all slots of a lock, on one path.
func (p *faultyPath) badLock(s *space, how, what string, lock int) {
	p.t.Helper()
	p.trouble(how, fmt.Sprintf("%s %d %d", what, s.geo.Slot(lock, 1), s.geo.Slot(lock, s.geo.Hosts)+int64(s.geo.Stride)))
}

func TestStanding_RecordOfDeadHostOverwritten_LockPassesOn(t *testing.T) {
	s, a, b := standingHold(t)
	b.powerOff()
	a.declares(b)
	s.damage(s.geo.Host(2))
	damaged := sinceBoot()
	a.gets("x")
	bounded(t, "host record of a dead host overwritten: its lock", noticed, damaged)
	joined := sinceBoot()
	c := s.machine("3")
	c.fresh()
	bounded(t, "host record of a dead host overwritten: a host joins", blind, joined)
	c.gets("x")
	bounded(t, "host record of a dead host overwritten: that host gets the dead host's lock", abandoned, joined)
}

func TestStanding_RecordOfHolderOverwrittenAllReset_LockPassesOn(t *testing.T) {
	s, a, b := standingHold(t)
	a.powerOff()
	b.powerOff()
	s.damage(s.geo.Host(2))
	a.reboot()
	began := sinceBoot()
	a.start()
	a.serves()
	a.gets("x")
	bounded(t, "host record overwritten, all hosts are reset: the lock of its host", silence+abandoned, began)
}

func TestStanding_RecordOfSilentHostOverwritten_LockPassesOn(t *testing.T) {
	for _, evict := range []bool{false, true} {
		t.Run(fmt.Sprintf("evict=%t", evict), func(t *testing.T) {
			s, a, b := standingHold(t)
			within(t, "bakeryd of host 1 has read the record of host 2", func() bool {
				return slices.ContainsFunc(a.status().Hosts, func(r report.Host) bool { return r.ID == 2 && r.SilentMS != nil })
			})
			fault, bound, since := "host record overwritten as its host dies: its lock", blind, b.powerOff()
			s.damage(s.geo.Host(2))
			if evict {
				until(since + standingTimes.Alive() + standingTimes.Renew()) // otherwise it would be asked to leave
				fault, bound, since = "the same, and the host is evicted", noticed, sinceBoot()
				r := a.ctl("evict", "2", "--yes")
				require.Zero(t, r.code, r.stderr)
			}
			a.gets("x")
			bounded(t, fault, bound, since)
		})
	}
}

// TestStanding_RejoinWithSlowWrites_LockPassesOn: the incarnation ends with its lease. The host
// then joins again immediately, before another host could declare it dead, and all its claims fail.
func TestStanding_RejoinWithSlowWrites_LockPassesOn(t *testing.T) {
	slow := standingLease * 3 / 40
	s := standingSpace(t)
	a, b := s.host(1), s.machine("2")
	path := b.breakable()
	b.up()
	b.takeFor("x", deafHolder).entered()
	a.settles(b, "x")
	path.trouble("hang", "reads")
	lost := sinceBoot()
	waiter := a.waiter("x")
	within(t, "the lease is lost", func() bool { return strings.Contains(b.said(), "lease lost") })
	path.trouble("delay "+slow.String(), "writes")
	require.Equal(t, "done", path.tell("hang none"))
	s.joining(2)
	waiter.exits(0)
	bounded(t, "a host rejoins with writes slower than L/20: its lock", standingTimes.Lease+silence+4*slow, lost)
	joined := sinceBoot()
	s.machine("3").fresh()
	bounded(t, "a host rejoins with writes slower than L/20: a host joins", silence+noticed+4*slow, joined)
}

func TestStanding_RecordOfUnusedIDOverwritten_HostsJoin(t *testing.T) {
	t.Run("one up", func(t *testing.T) {
		s := standingSpace(t)
		a := s.host(1)
		s.damage(s.geo.Host(5))
		began := sinceBoot()
		s.machine("2").fresh()
		bounded(t, "host record of an unused id overwritten: a host joins", blind, began)
		a.gets("x")
	})
	t.Run("all down", func(t *testing.T) {
		s := standingSpace(t)
		hosts := s.hosts(2)
		for _, h := range hosts {
			h.powerOff()
			h.reboot()
		}
		s.damage(s.geo.Host(5))
		began := sinceBoot()
		for _, h := range hosts {
			h.start()
		}
		for _, h := range hosts {
			h.serves()
			h.gets("x")
		}
		bounded(t, "host record of an unused id overwritten: all hosts are reset and start", silence+blind, began)
	})
}

// TestStanding_OwnRecordUnreadable_LockPassesOn: writes of the record succeed, and reads of it fail
// on all hosts.
func TestStanding_OwnRecordUnreadable_LockPassesOn(t *testing.T) {
	s := standingSpace(t)
	var hosts []*host
	var paths []*faultyPath
	for id := 1; id <= 3; id++ {
		h := s.machine(fmt.Sprint(id))
		hosts, paths = append(hosts, h), append(paths, h.breakable())
	}
	owner, other, fresh := hosts[0], hosts[1], hosts[2]
	owner.up()
	other.up()
	j := s.journal("x")
	holder := owner.insist("x", "first")
	other.settles(owner, "x")
	for _, p := range paths {
		p.badHost(s, "fail", "reads", 1)
	}
	failed := sinceBoot()
	next := other.work("x", "next")
	fresh.start()
	within(t, "the lock passes on", func() bool { return j.find("next") != nil })
	bounded(t, "host record unreadable whatever is written, owner up: its lock", blind, failed)
	next.letGo()
	j.exclusive()
	holder.exits(75)
	fresh.serves()
	fresh.gets("fresh")
	bounded(t, "host record unreadable whatever is written, owner up: a host joins", blind, failed)
}

func TestStanding_InternalSlotOfGoneHostUnreadable_LocksAreMadeAndRemoved(t *testing.T) {
	for _, gone := range []string{"left", "dead"} {
		t.Run(gone, func(t *testing.T) {
			s := standingSpace(t)
			a, b := s.host(1), s.host(2)
			b.gets("x")
			for range 3 {
				s.renewed(2) // a host that was not seen to renew twice must also be silent
			}
			if gone == "left" {
				b.leave()
			} else {
				b.powerOff()
				a.declares(b)
			}
			s.damage(s.geo.Slot(0, 2))
			damaged := sinceBoot()
			a.gets("new")
			bounded(t, "slot in lock 0 unreadable, its host "+gone+": a lock is made", noticed, damaged)
			removed := sinceBoot()
			within(t, "the lock is removed", func() bool { return a.ctl("rm", "x").code == 0 })
			bounded(t, "slot in lock 0 unreadable, its host "+gone+": a lock is removed", noticed, removed)
			require.NotZero(t, a.ctl("rm", "x").code)
		})
	}
}

// TestStanding_SlotsOfOneLock_OthersGetTheLock: the device answers a host except for the slots of
// one lock, while the host claims or releases that lock.
func TestStanding_SlotsOfOneLock_OthersGetTheLock(t *testing.T) {
	for _, how := range []string{"hang", "fail"} {
		for _, when := range []string{"claims", "releases"} {
			t.Run(how+" "+when, func(t *testing.T) {
				s := standingSpace(t)
				a, b := s.host(1), s.machine("2")
				path := b.breakable()
				b.writeThrough()
				b.up()
				b.gets("x")
				lock := b.report("x").Number
				if when == "claims" {
					path.badLock(s, how, "reads", lock)
					b.take("x")
					within(t, "host 2 is choosing", func() bool { return s.slot(lock, 2).Record.Phase == layout.Choosing })
				} else {
					holder, _ := b.holds("x")
					a.settles(b, "x")
					path.badLock(s, how, "writes", lock)
					holder.stdin.Close()
				}
				since := sinceBoot()
				waiter := a.waiter("x")
				waiter.exits(0)
				bounded(t, fmt.Sprintf("slots of one lock %s while a host %s it: that lock", how, when), stuck, since)
				if how == "hang" {
					return // no bakeryd joins again while IO is in flight
				}
				b.getsAgain("y")
				// It may stay away for a lease, and tries to join every 5 s.
				bounded(t, fmt.Sprintf("slots of one lock %s while a host %s it: another lock on that host", how, when),
					stuck+silence+standingLease+5*time.Second, since)
			})
		}
	}
}

// TestStanding_SlotStaysUnreadable_LockPassesOn: the owner is live and writes the slot, but no host
// can read it. The owner gives up its lease, leaves and stays away.
func TestStanding_SlotStaysUnreadable_LockPassesOn(t *testing.T) {
	s := standingSpace(t)
	a, b := s.machine("1"), s.machine("2")
	paths := []*faultyPath{a.breakable(), b.breakable()}
	for _, h := range []*host{a, b} {
		h.up()
		h.gets("x")
	}
	at := s.geo.Slot(b.report("x").Number, 2)
	for _, p := range paths {
		p.trouble("fail", fmt.Sprintf("reads %d %d", at, at+int64(s.geo.Stride)))
	}
	for terms := 1; terms <= 2; terms++ {
		within(t, "host 2 serves again", func() bool { return strings.Count(b.said(), "msg=serving") == terms })
		began := sinceBoot()
		a.gets("x")
		bounded(t, "slot of a live host unreadable whatever is written: that lock", stuck+2*noticed, began)
	}
	within(t, "host 2 stays away again", func() bool { return strings.Count(b.said(), "this host stays away for another") >= 2 })
}

// writeThrough stops the kernel from sending flushes to the host's device: a flush waits up to 5 s
// while another write hangs. A loop device keeps the setting for its next file: the test ends by taking it back.
func (h *host) writeThrough() {
	h.t.Helper()
	path := "/sys/block/" + filepath.Base(h.dev) + "/queue/write_cache"
	require.NoError(h.t, os.WriteFile(path, []byte("write through"), 0))
	h.t.Cleanup(func() { require.NoError(h.t, os.WriteFile(path, []byte("write back"), 0)) })
}

// getsAgain waits until a client of a host that may have to join again has had a lock.
func (h *host) getsAgain(name string) {
	h.t.Helper()
	within(h.t, "host "+h.id+" can take a lock again", func() bool {
		hold, err := h.client().Lock(h.t.Context(), name, client.Options{Timeout: standingLease})
		return err == nil && hold.Unlock() == nil
	})
}

func TestStanding_FirstRequestDuringRejoin_LockPassesOn(t *testing.T) {
	s, a, b := standingHold(t)
	off := b.powerOff()
	b.reboot()
	b.start()
	s.joining(2)
	asked := sinceBoot()
	a.gets("x")
	require.True(t, standstill.Expected() || !b.serving(), "the lock passed on only when its host had joined again")
	bounded(t, "first request while a dead host rejoins: since the death", silence, off)
	bounded(t, "first request while a dead host rejoins: since the request", noticed, asked)
	b.serves()
}

func TestStanding_KilledWhileJoiningSlotUnreadable_LockPassesOn(t *testing.T) {
	s, a, b := standingHold(t)
	lock := b.report("x").Number
	b.powerOff()
	a.declares(b)
	b.reboot()
	b.start()
	s.joining(2)
	b.crash()
	killed := sinceBoot()
	s.damage(s.geo.Slot(lock, 2))
	a.gets("x")
	bounded(t, "host killed while joining, its slot unreadable: that lock", silence, killed)
	joined := sinceBoot()
	s.machine("3").fresh()
	bounded(t, "host killed while joining, its slot unreadable: a host joins", silence, joined)
}
