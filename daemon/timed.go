package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// timed meters the requests to a device, without the time that they wait for their turn.
type timed struct {
	blockdev.Device
	io *tally.IO
}

func (t timed) Read(p []byte, off int64) error {
	began := time.Now()
	err := t.Device.Read(p, off)
	t.io.Reads.Add(time.Since(began), err)
	return err
}

func (t timed) Write(p []byte, off int64) error {
	began := time.Now()
	err := t.Device.Write(p, off)
	t.io.Writes.Add(time.Since(began), err)
	return err
}

// use sets the devices for each purpose, all on dev.
func (d *Daemon) use(dev blockdev.Device) {
	kind := func(k tally.Kind) blockdev.Device { return timed{dev, &d.cfg.Tally.IO[k]} }
	turns := inTurns(kind(tally.Lock))
	d.opened, d.bare, d.dev = dev, kind(tally.Lease), turns
	d.seen = &takingTurns{Device: kind(tally.Report), turns: turns.turns}
}
