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
	// How long a boot takes depends on what else the machine does; one that took too long shows nothing of this.
	for lease, booted := 20*time.Second, time.Duration(0); ; lease = max(2*lease, 3*booted.Round(time.Second)) {
		require.Less(t, lease, 3*time.Minute, "no boot is faster than that")
		if !t.Run(lease.String(), func(t *testing.T) { booted = resetWhileHolding(t, setup{lease: lease}) }) || booted < lease/2 {
			return
		}
	}
}

// resetWhileHolding returns how long the host took to be up again. If that was far less than its lease, nobody else may
// have entered by then.
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
		require.Equal(t, token, c.counter().Token, "nobody has entered before")
	}
	c.othersWaited(next(), began, 0)
	a.bakeryd.says("msg=serving")
	a.work()
	c.progress(2, a, b)
	rest(a, b)
	c.whole(token)
	return booted
}
