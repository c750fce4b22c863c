package daemon

import (
	"context"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// Counter is told how far a long step is: so much of a total is done, in bytes if bytes says so, else in a measure of the step's
// own. The total stays the same within a step. It is called often, from one goroutine at a time, and must not block. A nil
// Counter counts nothing.
type Counter func(step string, done, total int64, bytes bool)

func (c Counter) tell(step string, done, total int64, bytes bool) {
	if c != nil {
		c(step, min(done, total), total, bytes)
	}
}

// watchedDevice is read on behalf of somebody who may lose patience, and wants to know how far it is.
type watchedDevice struct {
	blockdev.Device
	ctx  context.Context
	each func(n int64) // bytes were read; nil: nobody counts
}

// Read implements blockdev.Device. It also returns the cause of the end of the context, which is no error of a sector.
func (d watchedDevice) Read(p []byte, off int64) error {
	if d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	err := d.Device.Read(p, off)
	if d.each != nil {
		d.each(int64(len(p)))
	}
	return err
}

// pollEvery is how often the host table is read by one who waits for a change of it.
func pollEvery(lease, most time.Duration) time.Duration {
	return min(max(lease/60, 20*time.Millisecond), most)
}
