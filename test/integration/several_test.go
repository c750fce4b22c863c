//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// inTurns makes each member faulty, one after the other.
func inTurns(t *testing.T, how string, fault func(t *testing.T, hosts []*host, c *traffic, member int)) {
	t.Helper()
	t.Parallel()
	s, paths := brokenSpace(t)
	hosts := s.hosts(3)
	c := s.traffic(hosts...)
	for member, p := range paths {
		p.trouble(how, "all")
		fault(t, hosts, c, member)
		c.progress()
		p.repair()
		for _, h := range hosts {
			h.recovers(member)
			if how == "fail" {
				h.logs(member, "back")
			}
		}
	}
	c.unharmed()
}

func TestSeveral_MemberFails_AllContinue(t *testing.T) {
	inTurns(t, "fail", func(t *testing.T, hosts []*host, c *traffic, member int) {
		for _, h := range hosts {
			h.loses(member, "input/output error")
		}
	})
}

func TestSeveral_MemberHangs_AllContinue(t *testing.T) {
	inTurns(t, "hang", func(t *testing.T, hosts []*host, c *traffic, member int) {
		c.progressFor(2 * briefLease)
		for _, h := range hosts {
			h.hangs(member)
		}
	})
}

func TestSeveral_MemberIsSlow_AllContinue(t *testing.T) {
	inTurns(t, "delay 50ms", func(t *testing.T, hosts []*host, c *traffic, member int) {
		for _, h := range hosts {
			h.shows(member, "is slow", func(d report.Disk) bool { return d.IO.Read.P99US >= 50_000 && d.IO.Write.P99US >= 50_000 })
		}
	})
}

// inPlaceOf replaces each member by a disk with other contents, in a lockspace of its own, as they
// do not come back. content is called before the member fails.
func inPlaceOf(t *testing.T, why string, content func(c *traffic, member int) []byte) {
	t.Helper()
	t.Parallel()
	for member := range members {
		t.Run(fmt.Sprint(member), func(t *testing.T) {
			t.Parallel()
			s, paths := brokenSpace(t)
			s.damaged = true
			c := s.traffic(s.hosts(3)...)
			c.refuse(paths[member], member, content(c, member), why, 5*lockspace.DefaultRetry/2)
			c.unharmed()
		})
	}
}

func TestSeveral_MemberIsWiped_StaysDown(t *testing.T) {
	inPlaceOf(t, "never formatted", func(c *traffic, _ int) []byte { return c.s.blankMember() })
}

func TestSeveral_MemberIsAClone_StaysDown(t *testing.T) {
	inPlaceOf(t, "want member", func(c *traffic, member int) []byte { return c.s.content((member + 1) % members) })
}

func TestSeveral_MemberIsRestored_StaysDown(t *testing.T) {
	inPlaceOf(t, "lost writes", func(c *traffic, member int) []byte {
		snapshot := c.s.content(member)
		c.renewed(member)
		return snapshot
	})
}

// TestSeveral_CloneAndSlowMember_AllContinue: too few members show the superblock in time, but it is
// there.
func TestSeveral_CloneAndSlowMember_AllContinue(t *testing.T) {
	t.Parallel()
	s, paths := brokenSpace(t)
	s.damaged = true
	hosts := s.hosts(3)
	c := s.traffic(hosts...)
	paths[1].trouble("delay 80ms", "all")
	c.progress()
	s.overwrite(0, s.content(2))
	for _, h := range hosts {
		h.loses(0, "want member")
	}
	c.unharmed()
}

// TestSeveral_MemberIsLost_LocksAreCreated by several hosts, one after the other.
func TestSeveral_MemberIsLost_LocksAreCreated(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fail", "delay 50ms"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s, paths := brokenSpace(t)
			hosts := s.hosts(2)
			paths[2].trouble(how, "all")
			for i := range 6 {
				r := hosts[i%2].lock("-w", "60", fmt.Sprint("new-", i), "--", "true")
				require.Zero(t, r.code, "lock %d: %s", i, r.stderr)
			}
		})
	}
}

// TestSeveral_MemberIsLate_LocksAreCreated although its copy of the entry before is in flight.
func TestSeveral_MemberIsLate_LocksAreCreated(t *testing.T) {
	t.Parallel()
	s, paths := brokenSpace(t)
	h := s.host(1)
	paths[2].trouble("delay 400ms", "all")
	for i := range 3 {
		r := h.lock("-w", "60", fmt.Sprint("new-", i), "--", "true")
		require.Zero(t, r.code, "lock %d: %s", i, r.stderr)
	}
}

// TestSeveral_EachHostLosesAnotherMember_AllContinue: the members that two hosts reach have one in
// common.
func TestSeveral_EachHostLosesAnotherMember_AllContinue(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fail", "hang"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := severalSpace(t)
			var hosts []*host
			var paths []*faultyPath
			for member := range members {
				h := s.machine(fmt.Sprint(member + 1))
				paths = append(paths, h.breakableMember(member))
				h.start()
				hosts = append(hosts, h)
			}
			for _, h := range hosts {
				h.ready()
			}
			c := s.traffic(hosts...)
			for _, p := range paths {
				p.trouble(how, "all")
			}
			if how == "hang" {
				c.progressFor(2 * briefLease)
			}
			c.progress()
			for member, h := range hosts {
				if how == "hang" {
					h.hangs(member)
				} else {
					h.loses(member, "input/output error")
				}
				for i, d := range h.disks() {
					require.Equal(t, i != member, d.Up(), "host %s, member %d: %+v", h.id, i, d)
				}
				paths[member].repair()
				h.recovers(member)
			}
			c.unharmed()
		})
	}
}

// TestSeveral_HostLosesTwoMembers_StopsInTime: it joins again when they are back.
func TestSeveral_HostLosesTwoMembers_StopsInTime(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fail", "hang"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := severalSpace(t)
			a := s.machine("1")
			paths := []*faultyPath{a.breakableMember(1), a.breakableMember(2)}
			a.up()
			b := s.host(2)
			before := a.incarnation()
			j := s.journal("x")
			holder := a.insist("x", "first")
			b.settles(a, "x")
			next := b.waits("x", "next", a)
			renewed := s.renewed(1)
			lost := sinceBoot()
			for _, p := range paths {
				p.trouble(how, "all")
			}
			if how == "hang" {
				a.work("free", "late")
			}
			entered := j.entered("next")
			holder.exits(75)
			first, child := j.gone("first"), j.gone("first-child")
			measured(t, "two of three disks "+how+" to last sign of life of the command, lease "+briefLease.String(), max(first.last, child.last)-lost)
			measured(t, "two of three disks "+how+" to next holder inside, lease "+briefLease.String(), entered.enter-lost)
			require.GreaterOrEqual(t, entered.enter, renewed+briefLease+margin(briefLease))
			require.True(t, a.running(), "bakeryd has ended: %s", a.said())
			require.Nil(t, s.journal("free").find("late"), "a lock was granted by one of three disks")
			repaired := sinceBoot()
			for _, p := range paths {
				p.repair()
			}
			a.rejoins(before)
			measured(t, "two of three disks work again to host rejoined, lease "+briefLease.String(), sinceBoot()-repaired)
			require.Equal(t, 1, a.lock("-w", "0.1", "x", "--", "true").code)
			next.letGo()
			require.Zero(t, a.lock("-w", "120", "x", "--", "true").code)
			for member := range members {
				a.recovers(member)
			}
			j.exclusive()
			for _, p := range paths {
				p.neverTwice()
			}
		})
	}
}

// TestSeveral_AllLoseTwoMembers_NothingIsGranted: all join again when these are back.
func TestSeveral_AllLoseTwoMembers_NothingIsGranted(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fail", "hang"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s, paths := brokenSpace(t)
			hosts := s.hosts(3)
			j := s.journal("x")
			holder := hosts[0].insist("x", "first")
			var before []string
			for _, h := range hosts {
				before = append(before, h.incarnation())
			}
			require.Zero(t, hosts[1].lock("free", "--", "true").code)
			for _, p := range paths[1:] {
				p.trouble(how, "all")
			}
			holder.exits(75)
			j.gone("first")
			j.gone("first-child")
			for _, h := range hosts {
				require.NotZero(t, h.lock("-w", "0.2", "free", "--", "true").code)
				require.NotZero(t, h.lock("-w", "0.2", "x", "--", "true").code)
				require.True(t, h.running(), "bakeryd has ended: %s", h.said())
			}
			for _, p := range paths[1:] {
				p.repair()
			}
			for i, h := range hosts {
				h.rejoins(before[i])
			}
			for _, h := range hosts {
				h.asks("-w", "120", "x", "--", self(), roleWorker, j.path, "later-"+h.id).stdin.Close()
			}
			for _, h := range hosts {
				j.entered("later-" + h.id)
				j.gone("later-" + h.id)
				for member := range members {
					h.recovers(member)
				}
			}
			j.exclusive()
		})
	}
}

// TestSeveral_Reformat_HoldsEnd: the daemon loses its lease, and joins the new lockspace by itself.
func TestSeveral_Reformat_HoldsEnd(t *testing.T) {
	t.Parallel()
	s := severalSpace(t)
	a := s.host(1)
	holder, _ := a.holds("x")
	old, incarnation := s.uuid, a.incarnation()
	s.format("--force", "--hosts", "8", "--locks", "16", "--lease", briefLease.String(), a.more[0], a.more[1])
	require.False(t, holder.running(), "the command runs in a lockspace that is gone")
	holder.exits(75)
	require.Contains(t, a.said(), "the lockspace on the device is another one, or gone")
	require.NotEqual(t, old, s.uuid)
	a.rejoins(incarnation)
	require.Equal(t, s.uuid, a.status().Lockspace.UUID)
}

// blank returns a loop device over a blank disk.
func (s *space) blank() string {
	s.t.Helper()
	file := filepath.Join(s.dir, "blank")
	require.NoError(s.t, os.WriteFile(file, make([]byte, imageSize), 0o600))
	return loopOver(s.t, file, s.sector)
}

// TestSeveral_StartWithoutAMember_Serves: with no path to it, or with another disk in its place.
func TestSeveral_StartWithoutAMember_Serves(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(h *host, member int){
		"no path": func(h *host, member int) {
			devices := slices.Delete(append([]string{h.dev}, h.more...), member, member+1)
			h.dev, h.more = devices[0], devices[1:]
		},
		"no device":  func(h *host, member int) { h.replace(member, filepath.Join(h.dir, "absent")) },
		"blank disk": func(h *host, member int) { h.replace(member, h.s.blank()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := severalSpace(t)
			a := s.host(1)
			for member := range members {
				b := s.machine(fmt.Sprint(2 + member)) // the claim of an id that another disk shows as live takes longer
				change(b, member)
				b.up()
				d := b.disks()[member]
				require.Equal(t, "down", d.State)
				require.NotEmpty(t, d.Error)
				b.logs(member, "lost")
				for _, h := range []*host{a, b} {
					require.Zero(t, h.lock("-w", "60", "x", "--", "true").code)
				}
				b.leave()
			}
		})
	}
}

// TestSeveral_StartWhileMembersHang_ServesWhenTheyAnswer: the log does not call them wrong.
func TestSeveral_StartWhileMembersHang_ServesWhenTheyAnswer(t *testing.T) {
	t.Parallel()
	for why, first := range map[string]int{"no majority of the member disks": 1, "no member disk answers": 0} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			a := severalSpace(t).machine("1")
			var paths []*faultyPath
			for member := first; member < members; member++ {
				paths = append(paths, a.breakableMember(member))
			}
			for _, p := range paths {
				p.trouble("hang", "all")
			}
			a.start()
			eventually(t, "an attempt to join fails", func() bool { return strings.Contains(a.said(), `msg="joining failed, retrying" err="`+why) })
			require.Contains(t, a.said(), "no answer within 2s")
			for _, p := range paths {
				p.repair()
			}
			a.ready()
			require.Zero(t, a.lock("-w", "60", "x", "--", "true").code)
		})
	}
}

// TestSeveral_StartWithTheWrongDisks_IsRefused with the reason.
func TestSeveral_StartWithTheWrongDisks_IsRefused(t *testing.T) {
	t.Parallel()
	s, other := severalSpace(t), severalSpace(t)
	blank := s.blank()
	for _, c := range []struct {
		name, why string
		change    func(h *host)
	}{
		{"two absent", "needs 2 of 3, found 1", func(h *host) {
			h.replace(1, filepath.Join(h.dir, "absent"))
			h.replace(2, filepath.Join(h.dir, "absent too"))
		}},
		{"two without a path", "give at least 2 of them", func(h *host) { h.more = nil }},
		{"one blank and one absent", "needs 2 of 3, found 1", func(h *host) {
			h.replace(0, blank)
			h.replace(2, filepath.Join(h.dir, "absent"))
		}},
		{"one path twice", "lead to the same disk", func(h *host) { h.replace(0, h.more[0]) }},
		{"two paths of one disk", "lead to the same disk", func(h *host) { h.replace(1, s.loopOf(2)) }},
		{"two paths that look like two disks", "both are member 3", func(h *host) {
			h.replace(1, loopOver(t, s.pathTo(s.image(2)).file, s.sector))
		}},
		{"a disk of another lockspace", "give the disks of one lockspace", func(h *host) { h.replace(2, other.loopOf(2)) }},
		{"a disk of each", "give the disks of one lockspace", func(h *host) {
			h.replace(1, other.loopOf(1))
			h.more = h.more[:1]
		}},
	} {
		h := s.machine("1")
		c.change(h)
		h.start()
		h.exits(66)
		require.Contains(t, h.said(), c.why, c.name)
	}
	s.host(1)
}

// loopOf returns a new loop device over a member.
func (s *space) loopOf(member int) string {
	s.t.Helper()
	return loopOver(s.t, s.image(member), s.sector)
}

// TestSeveral_RestartWithoutAMember_KeepsTheHold of a command that runs on. The previous bakeryd has no
// request in flight to the member: it would not end.
func TestSeveral_RestartWithoutAMember_KeepsTheHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how string
		end func(*host)
	}{"fails, SIGKILL": {"fail", (*host).crash}, "fails, SIGTERM": {"fail", (*host).leave}, "hangs": {"hang", (*host).crash}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, paths := brokenSpace(t, "--lease", (4 * briefLease).String()) // it must be back before that ends
			a, b := s.host(1), s.host(2)
			before := a.incarnation()
			for member, p := range paths {
				lock := fmt.Sprint("x-", member)
				j := s.journal(lock)
				holder := a.work(lock, "first")
				j.entered("first")
				b.settles(a, lock)
				next := b.waits(lock, "next", a)
				if c.how == "fail" {
					p.trouble(c.how, "all")
					a.loses(member, "input/output error")
				}
				c.end(a)
				if c.how == "hang" {
					p.trouble(c.how, "all")
				}
				a.up()
				require.Equal(t, before, a.incarnation())
				require.False(t, a.disks()[member].Up())
				require.Equal(t, 1, b.lock("-n", lock, "--", "true").code)
				require.Contains(t, a.said(), "resumed=true")
				p.repair()
				a.recovers(member)
				b.recovers(member)
				require.True(t, holder.running(), "it was stopped: %s", holder.said())
				j.outside("next")
				holder.letGo()
				j.entered("next")
				require.Zero(t, j.find("first").term)
				next.letGo()
				j.exclusive()
			}
		})
	}
}
