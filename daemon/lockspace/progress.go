package lockspace

import (
	"context"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// Counter is told how far a long step is: so much of a total is done, in bytes if bytes says so, else in a measure of the step's
// own. The total stays the same within a step. It is called often, from one goroutine at a time, and must not block. A nil
// Counter counts nothing.
type Counter func(step string, done, total int64, bytes bool)

func (c Counter) Tell(step string, done, total int64, bytes bool) {
	if c != nil {
		c(step, min(done, total), total, bytes)
	}
}

// Watched is read on behalf of somebody who may lose patience, and wants to know how far it is.
type Watched struct {
	blockdev.Device
	Ctx  context.Context
	Each func(n int64) // bytes were read; nil: nobody counts
}

// Read implements blockdev.Device. It also returns the cause of the end of the context, which is no error of a sector.
func (d Watched) Read(p []byte, off int64) error {
	if d.Ctx.Err() != nil {
		return context.Cause(d.Ctx)
	}
	err := d.Device.Read(p, off)
	if d.Each != nil {
		d.Each(int64(len(p)))
	}
	return err
}

// PollEvery is how often the host table is read by one who waits for a change of it.
func PollEvery(lease, most time.Duration) time.Duration {
	return min(max(lease/60, 20*time.Millisecond), most)
}
