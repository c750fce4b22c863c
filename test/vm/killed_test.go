//go:build vm

package vm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A host without power in the middle of a section: the others enter when its lease and the margin have passed, and
// the time-out of its watchdog on top, and not before.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{hosts: 3, cards: map[string]card{"a": cards["pci"]}})
	a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
	b.work()
	d.work()
	c.progress(2, b, d)
	_, token := a.enter()
	began, next := time.Now(), c.entered(token)
	a.kill()
	c.othersWaited(next(), began, c.times.Watchdog())
	c.progress(3, b, d)
	rest(b, d)
	c.whole(token)
}

// othersWaited wants that who entered after a host was cut down waited long enough.
func (c *cluster) othersWaited(entered, from time.Time, watchdog time.Duration) {
	c.t.Helper()
	took := entered.Sub(from)
	// It may have renewed its lease that long before. Clocks may differ by a tenth.
	least := (c.times.Dead()+watchdog)*9/10 - c.times.Alive()
	c.measured("the next entered %v later; it must not be before %v", took.Round(10*time.Millisecond), least.Round(10*time.Millisecond))
	require.Greater(c.t, took, least)
}

// A host that is reset in the middle of a section: it has forgotten all, joins again, and takes part.
func TestReset(t *testing.T) {
	t.Parallel()
	resetWhileHolding(t, setup{})
}

// A host that reboots faster than its lease runs out is no less dead: the section that it had begun is over, and it
// gets nothing of what it held back.
func TestRebootFasterThanTheLease(t *testing.T) {
	t.Parallel()
	resetWhileHolding(t, setup{slow: true})
}

func resetWhileHolding(t *testing.T, s setup) {
	c := gather(t, s)
	a, b := c.hosts[0], c.hosts[1]
	_, token := a.enter()
	b.work()
	began, next := time.Now(), c.entered(token)
	a.reset()
	a.booted(2)
	a.ready()
	a.launch()
	booted := time.Since(began)
	c.measured("it was up again after %v, with a lease of %v", booted.Round(10*time.Millisecond), c.times.Lease)
	if s.slow {
		require.Less(t, booted, c.times.Lease, "this one is to reboot faster than the lease")
		require.Equal(t, token, c.counter().Token, "nobody has entered before")
	}
	c.othersWaited(next(), began, 0)
	a.bakeryd.says("msg=serving")
	a.work()
	c.progress(2, a, b)
	rest(a, b)
	c.whole(token)
}
