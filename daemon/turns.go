package daemon

import "github.com/bakeryd/bakeryd/blockdev"

// maxUnderWay is how many requests of locks may be under way on the device at once. Each of them keeps a thread, of which a
// process may have only so many: on a device that hangs, every lock that somebody waits for would take one more. Disks
// have no use for that many either.
const maxUnderWay = 256

// takingTurns is a device on which only so many requests are under way at once. Whoever waits for his turn does so as for a
// slow device: what came of that, the lease judges. The lease itself goes straight to the device, and waits for nobody.
type takingTurns struct {
	blockdev.Device
	turns chan struct{}
}

func inTurns(dev blockdev.Device) *takingTurns {
	return &takingTurns{Device: dev, turns: make(chan struct{}, maxUnderWay)}
}

func (d *takingTurns) Read(p []byte, off int64) error {
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	return d.Device.Read(p, off)
}

func (d *takingTurns) Write(p []byte, off int64) error {
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	return d.Device.Write(p, off)
}
