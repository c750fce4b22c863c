package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/watchdog"
)

// Machine is what a daemon takes from the machine that it runs on, except its disk and Clock.
// Fields that are not set default to those of the real machine.
type Machine struct {
	Wall      func() time.Time // wall clock: may be wrong by any amount, and be set at any time
	MachineID [16]byte
	BootID    [16]byte
	// opens and thereby arms a watchdog
	Watchdog func(path string, want time.Duration) (watchdog.Device, error)
	Fence    func(fence.Config) (fence.Agent, error) // returns the agent of the policy fence
}

func (c Config) identity() hostid.Options {
	return hostid.Options{Name: c.Name, MachineID: c.Machine.MachineID, BootID: c.Machine.BootID, RuntimeDir: c.RuntimeDir, StateDir: c.StateDir}
}

func (m Machine) complete() Machine {
	if m.Wall == nil {
		m.Wall = time.Now
	}
	if m.MachineID == [16]byte{} {
		m.MachineID = hostid.MachineID()
	}
	if m.BootID == [16]byte{} {
		m.BootID = hostid.BootID()
	}
	if m.Watchdog == nil {
		m.Watchdog = func(path string, want time.Duration) (watchdog.Device, error) { return watchdog.Open(path, want) }
	}
	if m.Fence == nil {
		m.Fence = fence.New
	}
	return m
}
