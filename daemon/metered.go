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

// devices are the same device for each purpose.
type devices struct {
	opened blockdev.Device
	lease  blockdev.Device // not limited by turns
	locks  blockdev.Device
	report blockdev.Device
}

func devicesOn(dev blockdev.Device, t *tally.Tally) devices {
	kind := func(k tally.Kind) blockdev.Device { return meteredDevice{dev, &t.IO[k]} }
	turns := limitDevice(kind(tally.Lock))
	return devices{opened: dev, lease: kind(tally.Lease), locks: turns,
		report: &limitedDevice{Device: kind(tally.Report), turns: turns.turns}}
}
