package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// meteredDevice meters the requests to a device, without the time that they wait for their turn.
type meteredDevice struct {
	blockdev.Device
	io *tally.IO
}

func (t meteredDevice) Read(p []byte, off int64) error {
	began := time.Now()
	err := t.Device.Read(p, off)
	t.io.Reads.Add(time.Since(began), err)
	return err
}

func (t meteredDevice) Write(p []byte, off int64) error {
	began := time.Now()
	err := t.Device.Write(p, off)
	t.io.Writes.Add(time.Since(began), err)
	return err
}

// Devices are the same device for each purpose.
type Devices struct {
	Opened blockdev.Device
	Lease  blockdev.Device // not limited by turns
	Locks  blockdev.Device
	Report blockdev.Device
}

func DevicesOn(dev blockdev.Device, t *tally.Tally) Devices {
	kind := func(k tally.Kind) blockdev.Device { return meteredDevice{dev, &t.IO[k]} }
	turns := limitDevice(kind(tally.Lock))
	return Devices{Opened: dev, Lease: kind(tally.Lease), Locks: turns,
		Report: &limitedDevice{Device: kind(tally.Report), turns: turns.turns}}
}
