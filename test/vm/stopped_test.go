//go:build vm

package vm

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A host whose bakeryd is killed and not restarted, or paused, is reset by its watchdog, with a
// section that nothing else would stop. No other host enters before that. A clean leave disarms the
// watchdog.
func TestBakerydStopped(t *testing.T) {
	t.Parallel()
	cut := []struct {
		name   string
		signal syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"stopped", syscall.SIGSTOP}}
	pci := cards["pci"]
	c := gather(t, setup{cards: map[string]card{"a": pci}})
	a, b := c.hosts[0], c.hosts[1]
	state := func() string { return strings.TrimSpace(a.sh("cat /sys/class/watchdog/watchdog0/state")) }
	require.Equal(t, "active", state())
	a.bakeryd.signal(syscall.SIGTERM)
	a.bakeryd.exits(0)
	require.Equal(t, "inactive", state(), "a clean leave disarms it")
	a.begin()
	b.work()
	var cutShort []uint64
	for i, way := range cut {
		_, token := a.enter("--stubborn", "--watch")
		began, next := time.Now(), c.entered(token)
		a.bakeryd.signal(way.signal)
		entered := next()
		struck := a.monitor.first(pci.event, began)
		require.NotZero(t, struck, "the machine was not reset before another host entered")
		c.measured("bakeryd %s: the machine was reset %v later, the next entered %v later", way.name,
			struck.Sub(began).Round(10*time.Millisecond), entered.Sub(began).Round(10*time.Millisecond))
		c.othersWaited(entered, began, c.times.Watchdog())
		cutShort = append(cutShort, token)
		a.booted(i + 2)
		a.again()
	}
	require.Equal(t, 1, b.up())
	a.work()
	c.progress(2, a, b)
	rest(a, b)
	c.whole(cutShort...)
}

// A live host is silent: bakeryd is paused, and so is the bakeryctl that would stop its section,
// and there is no watchdog. The section runs after its lease, but cannot write the disk: others
// enter only after they have fenced the host.
func TestSilentAndFenced(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{fence: true})
	a, b := c.hosts[0], c.hosts[1]
	section, token := a.enter("--stubborn")
	b.work()
	began, next := time.Now(), c.entered(token)
	a.bakeryd.signal(syscall.SIGSTOP)
	section.signal(syscall.SIGSTOP) // of its bakeryctl
	c.othersWaited(next(), began, 0)
	c.progress(2, b)
	section.input("\n")
	section.says("refused: write the counter: ")
	section.says(conflict)
	c.progress(2, b)
	a.bakeryd.signal(syscall.SIGCONT)
	section.signal(syscall.SIGCONT)
	section.over()
	c.afterwards()
	c.whole(token)
}
