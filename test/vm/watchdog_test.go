//go:build vm

package vm

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/standstill"
)

// card is a watchdog, and the event in qemu when it fires.
type card struct {
	device []string
	module string
	event  string
}

var cards = map[string]card{
	"pci":      {[]string{"-device", "i6300esb", "-action", "watchdog=reset"}, "i6300esb", "WATCHDOG"},
	"isa":      {[]string{"-device", "ib700", "-action", "watchdog=reset"}, "ib700wdt", "WATCHDOG"}, // a driver older than the kernel's watchdog core
	"software": {nil, "softdog", "RESET"},
}

// watch runs a test of package watchdog in the machine.
func (m *machine) watch(test string, flags ...string) *command {
	m.t.Helper()
	return m.start(append([]string{"watchdog.test", "-test.run", "^" + test + "$", "-watchdog", "/dev/watchdog"}, flags...)...)
}

// struck waits until the watchdog has reset the machine for the first time.
func (m *machine) struck(c card) {
	m.t.Helper()
	m.booted(2)
	require.True(m.t, slices.Contains(m.monitor.seen(), c.event), "no %s among %v", c.event, m.monitor.seen())
}

// A host survives while its watchdog is disarmed or fed, and is reset when the feeding process is
// killed.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	for name, c := range cards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := boot(t, name, c.device...)
			m.run("modprobe", c.module)
			m.watch("TestDevice").exits(0)
			timeout := standstill.Outlives(2 * time.Second).String()
			feeder := m.watch("TestFeed", "-watchdog-timeout", timeout)
			feeder.says("for three times " + timeout)
			require.Equal(t, 1, m.up())
			feeder.signal(syscall.SIGKILL)
			m.struck(c)
		})
	}
}

// A driver that cannot be disarmed is told from one that can: the host is reset, as the error says.
func TestWatchdogNoWayOut(t *testing.T) {
	t.Parallel()
	c := cards["software"]
	m := boot(t, "nowayout", c.device...)
	m.run("modprobe", c.module, "nowayout=1")
	m.watch("TestNoWayOut").exits(0)
	m.struck(c)
}
