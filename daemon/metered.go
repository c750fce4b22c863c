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

// use sets the devices for each purpose, all on dev.
func (d *Daemon) use(dev blockdev.Device) {
	kind := func(k tally.Kind) blockdev.Device { return meteredDevice{dev, &d.cfg.Tally.IO[k]} }
	turns := limitDevice(kind(tally.Lock))
	d.opened, d.bare, d.dev = dev, kind(tally.Lease), turns
	d.seen = &limitedDevice{Device: kind(tally.Report), turns: turns.turns}
}
