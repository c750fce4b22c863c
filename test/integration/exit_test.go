//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// ends are the ways in which bakeryd ends.
var ends = map[string]func(*host){"SIGTERM": (*host).leave, "SIGKILL": (*host).crash}

// TestExit_MemberHangs_NextServes: the requests of the process that is gone are in flight. So the next one
// uses the member only when they have returned, and keeps the intent of the lock that was created last.
func TestExit_MemberHangs_NextServes(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, paths := brokenSpace(t)
			a, b := s.host(1), s.host(2)
			paths[2].trouble("hang", "writes") // the next process reads there, and finds it locked
			require.Zero(t, a.lock("-w", "60", "x", "--", "true").code)
			a.hangs(2)
			began := sinceBoot()
			end(a)
			measured(t, "a member hangs, "+name+" to end of bakeryd", sinceBoot()-began)

			a.up()
			a.loses(2, "a request is in flight")
			require.Zero(t, a.lock("-w", "60", "x", "--", "true").code)
			r := a.lock("-w", "60", "y", "--", "true")
			require.NotZero(t, r.code)
			require.Contains(t, r.stderr, "has not returned from a member disk")
			require.Zero(t, b.lock("-w", "60", "x", "--", "true").code)
			require.NotZero(t, b.ctl("rm", "x").code, "host 1 may write its entry")

			paths[2].repair()
			a.recovers(2)
			b.recovers(2)
			eventually(t, "host 1 creates locks", func() bool { return a.lock("-w", "60", "y", "--", "true").code == 0 })
			require.Zero(t, b.ctl("rm", "x").code)
			paths[2].neverTwice()
			a.leave()
			b.leave()
		})
	}
}

// TestLoss_MemberHangs_SameProcessServes: two members hang for a host, and its lease ends. When one is back, the
// host joins again, as often as that happens, and uses the other one when the requests of all terms have returned.
func TestLoss_MemberHangs_SameProcessServes(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"all", "writes"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := severalSpace(t)
			a := s.machine("1")
			returns, stays := a.breakableMember(1), a.breakableMember(2)
			a.up()
			b := s.host(2)
			stays.trouble("hang", what)
			require.Zero(t, a.lock("-w", "60", "x", "--", "true").code)
			a.hangs(2)
			losses := 0
			losesAndRejoins := func() {
				before := a.incarnation()
				returns.trouble("hang", "all")
				losses++
				eventually(t, "the loss", func() bool { return strings.Count(a.said(), "lease lost") == losses })
				repaired := sinceBoot()
				returns.repair()
				a.rejoins(before)
				measured(t, "one of two disks that hang works again to host rejoined, lease "+briefLease.String(), sinceBoot()-repaired)
				a.recovers(1)
				require.False(t, a.disks()[2].Up())
			}
			losesAndRejoins()
			require.Zero(t, a.lock("-w", "60", "x", "--", "true").code)
			r := a.lock("-w", "60", "y", "--", "true")
			require.NotZero(t, r.code)
			require.Contains(t, r.stderr, "has not returned from a member disk")
			require.Zero(t, b.lock("-w", "60", "x", "--", "true").code)
			require.NotZero(t, b.ctl("rm", "x").code, "host 1 may write its entry")
			hanging := stays.hanging()
			losesAndRejoins()
			losesAndRejoins()
			require.Equal(t, hanging, stays.hanging(), "each term makes more requests")

			stays.repair()
			a.recovers(2)
			eventually(t, "host 1 creates locks", func() bool { return a.lock("-w", "60", "y", "--", "true").code == 0 })
			require.Zero(t, b.ctl("rm", "x").code)
			stays.neverTwice()
			a.leave()
			b.leave()
		})
	}
}

// TestExit_MemberHangs_BakeryctlEnds although it reads that disk, too.
func TestExit_MemberHangs_BakeryctlEnds(t *testing.T) {
	t.Parallel()
	s, paths := brokenSpace(t)
	a := s.host(1)
	paths[2].trouble("hang", "all")
	a.hangs(2)
	devices := append([]string{a.dev}, a.more...)
	var flags []string
	for _, dev := range devices {
		flags = append(flags, "--device", dev)
	}
	for _, args := range [][]string{
		append([]string{"disks"}, flags...),
		append([]string{"status"}, flags...),
		{"dump", devices[0]},
		append([]string{"check"}, devices...),
		slices.Concat([]string{"lock"}, flags, []string{"x", "--", "true"}),
		{"disks", "--socket", a.socket},
		{"lock", "--socket", a.socket, "y", "--", "true"},
	} {
		r := execute(t, append([]string{plain.bakeryctl}, args...)...)
		measured(t, "a member hangs, bakeryctl "+args[0], r.took)
		if args[0] != "check" { // it names the disk
			require.Zero(t, r.code, "%q: %s", args, r.stderr)
		}
	}
	for _, args := range [][]string{{"probe", devices[2]}, {"dump", devices[2]}} {
		p := launch(t, a.dir, append([]string{plain.bakeryctl}, args...)...)
		hanging := paths[2].hanging()
		eventually(t, "it reads", func() bool { return paths[2].hanging() > hanging })
		eventually(t, "it ends", func() bool {
			if p.running() {
				_ = p.cmd.Process.Signal(syscall.SIGINT) // probe ends by the second one
			}
			return !p.running()
		})
	}
	paths[2].repair()
	a.recovers(2)
	a.leave()
}

// TestExit_MemberHangs_NextKeepsTheHold of a command that runs on.
func TestExit_MemberHangs_NextKeepsTheHold(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
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
				p.trouble("hang", "all")
				a.hangs(member)
				began := sinceBoot()
				end(a)
				measured(t, "a member hangs, "+name+" under a hold to end of bakeryd", sinceBoot()-began)
				began = sinceBoot()
				a.up()
				measured(t, "a member hangs, start of bakeryd to ready", sinceBoot()-began)
				require.Equal(t, before, a.incarnation())
				require.Contains(t, a.said(), "resumed=true")
				require.False(t, a.disks()[member].Up())
				require.Equal(t, 1, b.lock("-n", lock, "--", "true").code)
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
				p.neverTwice()
			}
		})
	}
}
