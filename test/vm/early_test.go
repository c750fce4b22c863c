//go:build vm

package vm

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// early is a cluster that fences long before the lease is over, on a target that aborts the writes of a
// fenced host.
var early = setup{lease: 30 * time.Second, fence: true, after: 6 * time.Second, aborts: true}

// soon checks that a section entered long before the lease of a host that ended was over: after less than
// 10 s, unless the lab's machine is overloaded.
func (c *cluster) soon(entered, from time.Time) {
	c.t.Helper()
	c.othersWaited(entered, from, 0)
	fence := c.hosts[1].fenceTook()
	c.measured("the fence took %v, all else %v", fence.Round(10*time.Millisecond), (entered.Sub(from) - fence).Round(10*time.Millisecond))
	require.Less(c.t, entered.Sub(from), c.times.Lease/2)
}

var fenceLine = regexp.MustCompile(`time=(\S+) level=WARN msg="(host is silent, fencing it|host fenced)"`)

// fenceTook returns how long the host's fence of another one took, by its own clock.
func (h *host) fenceTook() time.Duration {
	h.t.Helper()
	lines := fenceLine.FindAllStringSubmatch(h.bakeryd.said(), -1)
	require.Len(h.t, lines, 2, h.bakeryd.said())
	var at [2]time.Time
	for i, l := range lines {
		var err error
		at[i], err = time.Parse(time.RFC3339Nano, l[1])
		require.NoError(h.t, err)
	}
	return at[1].Sub(at[0])
}

// A host with a lease of 30 s loses power within a section: with policy fence alone the others wait for its
// lease, and then for the fence.
func TestKilledAndFenced(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{lease: early.lease, fence: true})
	a, b := c.hosts[0], c.hosts[1]
	_, token := a.enter()
	b.work()
	began, next := time.Now(), c.entered(token)
	a.kill()
	c.othersWaited(next(), began, 0)
	c.measured("the fence took %v", b.fenceTook().Round(10*time.Millisecond))
	rest(b)
	c.whole(token)
}

// A host with a lease of 30 s loses power within a section: with fence-after 6 s the others enter when it
// is fenced, within seconds.
func TestKilledAndFencedEarly(t *testing.T) {
	t.Parallel()
	c := gather(t, early)
	a, b := c.hosts[0], c.hosts[1]
	_, token := a.enter()
	b.work()
	began, next := time.Now(), c.entered(token)
	a.kill()
	c.soon(next(), began)
	c.progress(3, b)
	rest(b)
	c.whole(token)
}

// The clocks of a host stop for a few seconds of its lease: with fence-after the others enter meanwhile,
// and the target refuses the late write. The host learns that it was fenced, and joins again.
func TestPausedAndFencedEarly(t *testing.T) {
	t.Parallel()
	c := gather(t, early)
	a := c.hosts[0]
	late, token := c.haltUntilFenced(a.pause, a.resume)
	c.refused(late)
	c.afterwards()
	c.whole(token)
}

// A host is frozen, and its clocks see that: it also grants nothing when it continues.
func TestFrozenAndFencedEarly(t *testing.T) {
	t.Parallel()
	c := gather(t, early)
	a := c.hosts[0]
	var behind *command
	late, token := c.haltUntilFenced(func() {
		behind = a.take("read line")
		time.Sleep(c.times.Renew()) // it waits in the queue of its host
		a.freeze()
	}, a.thaw)
	c.refused(late)
	eventually(t, "the waiter behind it has ended", func() bool { return !behind.runs() })
	behind.outside()
	c.afterwards()
	c.whole(token)
}

// haltUntilFenced halts host a within a section until b enters, and then lets it continue. a's late write
// follows.
func (c *cluster) haltUntilFenced(halt, resume func()) (late *command, token uint64) {
	c.t.Helper()
	a, b := c.hosts[0], c.hosts[1]
	late, token = a.enter("--stubborn")
	b.work()
	next := c.entered(token)
	halt()
	began := time.Now()
	c.soon(next(), began)
	c.progress(2, b)
	late.input("\n") // read when the machine continues
	resume()
	return late, token
}

// refused waits for the end of a late section, none of whose writes has landed.
func (c *cluster) refused(late *command) {
	c.t.Helper()
	began := time.Now()
	late.over()
	c.measured("the late section ended %v after its host continued", time.Since(began).Round(10*time.Millisecond))
	require.NotContains(c.t, late.said(), "raised")
}
