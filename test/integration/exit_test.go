//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

// ends are the ways in which bakeryd ends, with the longest time that it may take. A bakeryd that leaves
// waits for requests as long as holders have to stop, and for the device.
var ends = map[string]struct {
	end  func(*host)
	most time.Duration
}{
	"SIGTERM": {(*host).leave, briefLease/6 + briefLease/20 + lockspace.DefaultTimeout + time.Second},
	"SIGKILL": {(*host).crash, time.Second},
}

// TestExit_MemberHangs_NextServes: the requests of the process that is gone are in flight. So the next one
// uses the member only when they have returned, and keeps the intent of the lock that was created last.
func TestExit_MemberHangs_NextServes(t *testing.T) {
	t.Parallel()
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, paths := brokenSpace(t)
			a, b := s.host(1), s.host(2)
			paths[2].trouble("hang", "writes") // the next process reads there, and finds it locked
			require.Zero(t, a.lock("-w", "60", "x", "--", "true").code)
			a.hangs(2)
			began := sinceBoot()
			c.end(a)
			took := sinceBoot() - began
			measured(t, "a member hangs, "+name+" to end of bakeryd", took)
			require.Less(t, took, c.most)

			a.up()
			a.loses(2, "has a request in flight")
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

// TestExit_MemberHangs_NextKeepsTheHold of a command that runs on.
func TestExit_MemberHangs_NextKeepsTheHold(t *testing.T) {
	t.Parallel()
	for name, c := range ends {
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
				c.end(a)
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
