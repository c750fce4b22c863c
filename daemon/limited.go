package daemon

import "github.com/bakeryd/bakeryd/blockdev"

// maxUnderWay is the limit of concurrent requests of locks to the device. Each request occupies a
// thread, and the number of threads of a process is limited. On a hung device, every lock that a
// client waits for would occupy one more. No disk needs more requests either.
const maxUnderWay = 256

// limitedDevice is a device that limits concurrent requests to maxUnderWay. A request that waits for
// its turn is like one on a slow device: the lease handles it. The lease itself uses the device
// without a limit, so it does not wait.
type limitedDevice struct {
	blockdev.Device
	turns chan struct{}
}

func limitDevice(dev blockdev.Device) *limitedDevice {
	return &limitedDevice{Device: dev, turns: make(chan struct{}, maxUnderWay)}
}

func (d *limitedDevice) Read(p []byte, off int64) error {
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	return d.Device.Read(p, off)
}

func (d *limitedDevice) Write(p []byte, off int64) error {
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	return d.Device.Write(p, off)
}
