//go:build vm

package vm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A host that cannot reach the lockspace's disk stops its section before its lease ends, even
// though it could still write the other disk. Only then another host enters. When the disk is back
// the host joins again by itself. The result is the same whether connections are closed or data is
// lost.
func TestCut(t *testing.T) {
	t.Parallel()
	// Twice the usual lease: a fifth of it remains for SIGKILL, which must suffice on a busy
	// machine.
	c := gather(t, setup{hosts: 3, lease: 2 * usual})
	a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
	b.work()
	d.work()
	c.progress(1, b, d)
	var cutShort []uint64
	for _, way := range []struct {
		name string
		cut  func()
	}{{"closed", a.locks[0].cut}, {"silent", a.locks[0].hold}} {
		terms := a.joined()
		// It checks continuously that no other section runs, and so reads the data's disk all
		// along.
		section, token := a.enter("--stubborn", "--watch")
		began, next := time.Now(), c.entered(token)
		way.cut()
		section.exits(75)
		c.measured("%s: bakeryctl told %v after the cut that the section was stopped, with a lease of %v; the next entered %v after the cut", way.name,
			section.end().Sub(began).Round(10*time.Millisecond), c.times.Lease, next().Sub(began).Round(10*time.Millisecond))
		require.NotContains(t, section.said(), "refused", "another section ran at the same time")
		c.progress(2, b, d)
		a.locks[0].restore()
		eventually(t, "it has joined again", func() bool { return a.joined() > terms })
		cutShort = append(cutShort, token)
	}
	a.work()
	c.progress(2, a, b, d)
	rest(a, b, d)
	c.whole(cutShort...)
}

// A write that the fabric delays, and delivers when its host is long dead: the host cannot stop it.
// With policy fence the disk refuses it.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{fence: true})
	a, b := c.hosts[0], c.hosts[1]
	late, token := a.enter()
	b.work()
	next := c.entered(token)
	began := time.Now()
	a.data.hold()
	late.input("\n") // its write is in flight, and cannot be recalled
	a.sh("until grep -q '(section) D' /proc/[0-9]*/task/[0-9]*/stat; do sleep 0.1; done")
	a.locks[0].hold()
	c.othersWaited(next(), began, 0)
	c.progress(2, b)
	a.data.restore()
	late.over()
	c.progress(2, b)
	require.NotContains(t, late.said(), "raised")
	a.sh("until dmesg | grep -qE 'nexus error|reservation conflict'; do sleep 0.1; done") // the kernel's words for a reservation conflict
	a.locks[0].restore()
	c.afterwards()
	c.whole(token)
}
