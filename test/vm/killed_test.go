//go:build vm

package vm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A host loses power within a section: the others enter when its lease, the margin and its
// watchdog's timeout have passed, and not earlier.
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

// othersWaited checks that the section entered late enough after a host's end.
func (c *cluster) othersWaited(entered, from time.Time, watchdog time.Duration) {
	c.t.Helper()
	took := entered.Sub(from)
	// The host may have renewed its lease that long before. Clocks may differ by a tenth.
	least := c.times.Silence(watchdog)*9/10 - c.times.Alive()
	c.measured("the next entered %v later; it must not be before %v", took.Round(10*time.Millisecond), least.Round(10*time.Millisecond))
	require.Greater(c.t, took, least)
}

// A host is reset within a section: it has lost all state, joins again, and continues.
func TestReset(t *testing.T) {
	t.Parallel()
	resetWhileHolding(t, setup{})
}

// A host that reboots faster than its lease ends is dead, too: its section is over, and its locks
// are not given back.
func TestRebootFasterThanTheLease(t *testing.T) {
	t.Parallel()
	// The duration of a boot depends on the load; a boot that takes too long does not test this.
	for lease, booted := 20*time.Second, time.Duration(0); ; lease = max(2*lease, 3*booted.Round(time.Second)) {
		require.Less(t, lease, 3*time.Minute, "no boot is faster than that")
		if !t.Run(lease.String(), func(t *testing.T) { booted = resetWhileHolding(t, setup{lease: lease}) }) || booted < lease/2 {
			return
		}
	}
}

// resetWhileHolding returns how long the host's boot took. If that was far less than its lease, no
// other host may have entered by then.
func resetWhileHolding(t *testing.T, s setup) (booted time.Duration) {
	c := gather(t, s)
	a, b := c.hosts[0], c.hosts[1]
	_, token := a.enter()
	b.work()
	began, next := time.Now(), c.entered(token)
	a.reset()
	a.booted(2)
	a.ready()
	a.launch()
	booted = time.Since(began)
	c.measured("it was up again after %v, with a lease of %v", booted.Round(10*time.Millisecond), c.times.Lease)
	if booted < c.times.Lease/2 {
		require.Equal(t, token, c.counter().Token, "no section has entered before")
	}
	c.othersWaited(next(), began, 0)
	a.bakeryd.says("msg=serving")
	a.work()
	c.progress(2, a, b)
	rest(a, b)
	c.whole(token)
	return booted
}
