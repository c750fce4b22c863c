package daemon

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

const (
	// minPatience is the minimum wait for an IO before the device counts as hanging.
	minPatience = 3 * time.Second
	// maxPatience limits the wait for a whole report: less than the timeout of its requesters.
	maxPatience = 20 * time.Second
)

// inspection is a read of the whole lockspace for reports. It continues even if no caller waits for
// it any more, and ends with its IO. Closing the device waits for that.
type inspection struct {
	host     *Host
	read     func(blockdev.Device) (*lockspace.Snapshot, error)
	returned atomic.Int64  // when its last IO returned
	done     chan struct{} // closed when the fields below are set
	snapshot *lockspace.Snapshot
	err      error
}

// inspecting holds the inspection in progress, at most one per daemon. Repeated requests must not
// fill the kernel with IO to a device that hangs.
type inspecting struct {
	mu  sync.Mutex  // guards now
	now *inspection // nil if none
}

// inspect reads the lockspace, unless the device hangs.
func (h *Host) inspect() (*lockspace.Snapshot, error) { return h.inspectBy(lockspace.Inspect) }

// inspectBy reads a lockspace by the given function.
func (h *Host) inspectBy(read func(blockdev.Device) (*lockspace.Snapshot, error)) (*lockspace.Snapshot, error) {
	give := h.clock.Now() + maxPatience
	for {
		in, own := beginInspection(h, read)
		if err := in.await(give); err != nil {
			return nil, err
		}
		if own { // another caller's may have begun before the change that this caller wants to see
			return in.snapshot, in.err
		}
	}
}

// beginInspection returns the inspection in progress, or starts one; own reports the latter.
func beginInspection(h *Host, read func(blockdev.Device) (*lockspace.Snapshot, error)) (in *inspection, own bool) {
	h.inspecting.mu.Lock()
	defer h.inspecting.mu.Unlock()
	if in := h.inspecting.now; in != nil {
		return in, false
	}
	in = &inspection{host: h, read: read, done: make(chan struct{})}
	in.returned.Store(int64(h.clock.Now()))
	h.inspecting.now = in
	go in.run()
	return in, true
}

func (in *inspection) run() {
	in.snapshot, in.err = in.read(watched{in.host.devices.Report, in.host.clock, &in.returned})
	in.host.inspecting.mu.Lock()
	in.host.inspecting.now = nil
	in.host.inspecting.mu.Unlock()
	close(in.done)
}

// await waits for the end of an inspection as long as its IO returns.
func (in *inspection) await(give time.Duration) error {
	patience := min(max(minPatience, in.host.times().Budget()), maxPatience)
	for {
		now, returned := in.host.clock.Now(), time.Duration(in.returned.Load())
		if now >= returned+patience {
			return in.host.hangs(patience, "IO to %s hangs")
		}
		if now >= give {
			return in.host.hangs(maxPatience, "%s is slow")
		}
		t := time.NewTimer(min(returned+patience, give) - now)
		select {
		case <-in.done:
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// hangs returns the error of a report that takes too long. It includes the state of the lease,
// which matters most to its reader.
func (h *Host) hangs(after time.Duration, why string) error {
	lease := "this host has lost its lease"
	switch left := h.leaseLeft(); {
	case h.Err() != nil:
		lease += fmt.Sprintf(": %v", h.Err())
	case left > 0:
		lease = fmt.Sprintf("this host has %.1f s left of its lease", left.Seconds())
	}
	return fmt.Errorf("reading the lockspace takes longer than %v: "+why+"; %s", after, h.disk.Dev.Info().Path, lease)
}

// watched records when a read has returned.
type watched struct {
	blockdev.Device
	clock    clock.Clock
	returned *atomic.Int64
}

func (w watched) Read(p []byte, off int64) error {
	err := w.Device.Read(p, off)
	w.returned.Store(int64(w.clock.Now()))
	return err
}
