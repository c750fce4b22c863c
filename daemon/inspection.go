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
	// minPatience is for how long an IO is waited for at least before the device counts as one that hangs.
	minPatience = 3 * time.Second
	// maxPatience is for how long a whole report is waited for: less than those wait who ask for it.
	maxPatience = 20 * time.Second
)

// inspection is a read of the whole lockspace for those who asked for a
// report. It goes on when nobody waits for it any more; what it leaves behind
// ends with its IO, for which closing the device waits.
type inspection struct {
	d        *Daemon
	read     func(blockdev.Device) (*lockspace.Snapshot, error)
	returned atomic.Int64  // when an IO of it returned last
	done     chan struct{} // closed when the rest is set
	snapshot *lockspace.Snapshot
	err      error
}

// inspecting is the inspection under way, one a daemon at most: whoever asks
// again and again must not fill the kernel with requests to a device that hangs.
type inspecting struct {
	mu  sync.Mutex  // guards now
	now *inspection // nil: none
}

// inspect reads the lockspace, unless the device hangs.
func (d *Daemon) inspect() (*lockspace.Snapshot, error) { return d.inspectBy(lockspace.Inspect) }

// inspectBy has a lockspace read in the way that is given.
func (d *Daemon) inspectBy(read func(blockdev.Device) (*lockspace.Snapshot, error)) (*lockspace.Snapshot, error) {
	give := d.clock.Now() + maxPatience
	for {
		in, own := beginInspection(d, read)
		if err := in.await(give); err != nil {
			return nil, err
		}
		if own { // another's may have begun before what the caller wants to see
			return in.snapshot, in.err
		}
	}
}

// beginInspection returns the inspection that is under way, or one of the
// caller's own if there was none.
func beginInspection(d *Daemon, read func(blockdev.Device) (*lockspace.Snapshot, error)) (in *inspection, own bool) {
	d.inspecting.mu.Lock()
	defer d.inspecting.mu.Unlock()
	if in := d.inspecting.now; in != nil {
		return in, false
	}
	in = &inspection{d: d, read: read, done: make(chan struct{})}
	in.returned.Store(int64(d.clock.Now()))
	d.inspecting.now = in
	go in.run()
	return in, true
}

func (in *inspection) run() {
	in.snapshot, in.err = in.read(watched{in.d.seen, in.d.clock, &in.returned})
	in.d.inspecting.mu.Lock()
	in.d.inspecting.now = nil
	in.d.inspecting.mu.Unlock()
	close(in.done)
}

// await waits for the end of an inspection for as long as its IO returns.
func (in *inspection) await(give time.Duration) error {
	patience := min(max(minPatience, in.d.times().Budget()), maxPatience)
	for {
		now, returned := in.d.clock.Now(), time.Duration(in.returned.Load())
		if now >= returned+patience {
			return in.d.hangs(patience, "IO to %s hangs")
		}
		if now >= give {
			return in.d.hangs(maxPatience, "%s is slow")
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

// hangs is the error of a report that takes too long. It says how the lease
// stands, for that is what its reader wants to know most.
func (d *Daemon) hangs(after time.Duration, why string) error {
	lease := "this host has lost its lease"
	switch left := d.leaseLeft(); {
	case d.Err() != nil:
		lease += fmt.Sprintf(": %v", d.Err())
	case left > 0:
		lease = fmt.Sprintf("this host has %.1f s left of its lease", left.Seconds())
	}
	return fmt.Errorf("reading the lockspace takes longer than %v: "+why+"; %s", after, d.dev.Info().Path, lease)
}

// watched notes when a read has returned.
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
