//go:build vm

package vm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A host that cannot reach the disk of the lockspace stops its section before its lease ends, though it could go on
// writing the other disk; only then somebody else enters. When the disk is back it joins anew by itself. It makes
// no difference whether connections are closed or nothing comes through.
func TestCut(t *testing.T) {
	t.Parallel()
	// Twice the usual lease: what it leaves for a kill is a fifth of it, which is to be enough for a busy machine too.
	c := gather(t, setup{hosts: 3, lease: 2 * usual})
	a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
	b.work()
	d.work()
	c.progress(1, b, d)
	var cutShort []uint64
	for _, way := range []struct {
		name string
		cut  func()
	}{{"closed", a.locks.cut}, {"silent", a.locks.hold}} {
		terms := a.joined()
		// It looks all the time whether it is alone: for that it reaches the disk of the data all along.
		section, token := a.enter("--stubborn", "--watch")
		began, next := time.Now(), c.entered(token)
		way.cut()
		section.exits(75)
		c.measured("%s: bakeryctl told %v after the cut that the section was stopped, with a lease of %v; the next entered %v after the cut", way.name,
			section.end().Sub(began).Round(10*time.Millisecond), c.times.Lease, next().Sub(began).Round(10*time.Millisecond))
		require.NotContains(t, section.said(), "refused", "the section was not alone any more")
		c.progress(2, b, d)
		a.locks.mend()
		eventually(t, "it has joined anew", func() bool { return a.joined() > terms })
		cutShort = append(cutShort, token)
	}
	a.work()
	c.progress(2, a, b, d)
	rest(a, b, d)
	c.whole(cutShort...)
}

// A write that the fabric holds up, and delivers when its host is long dead: nothing on the host can stop it any
// more. With the recovery policy to fence, the disk refuses it.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{fence: true})
	a, b := c.hosts[0], c.hosts[1]
	late, token := a.enter()
	b.work()
	next := c.entered(token)
	began := time.Now()
	a.data.hold()
	late.input("\n") // its write is under way now, and cannot be called back
	a.sh("until grep -q '(section) D' /proc/[0-9]*/task/[0-9]*/stat; do sleep 0.1; done")
	a.locks.hold()
	c.othersWaited(next(), began, 0)
	c.progress(2, b)
	a.data.mend()
	late.over()
	c.progress(2, b)
	require.NotContains(t, late.said(), "raised")
	a.sh("until dmesg | grep -qE 'nexus error|reservation conflict'; do sleep 0.1; done") // what the kernel calls a reservation conflict
	a.locks.mend()
	c.afterwards()
	c.whole(token)
}
