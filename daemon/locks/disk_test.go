package locks

import (
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// faultyHost joins a host whose device can be made to fail. All faults are removed before it
// leaves.
func (c *cluster) faultyHost(id int) (*testHost, *disktest.Faulty) {
	c.t.Helper()
	f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
	d := c.host(id, through(f))
	c.t.Cleanup(f.RemoveFaults)
	return d, f
}

// slowly delays each request of a host, as a real disk does. Without that, no time passes in a
// bubble while hosts contend.
func (c *cluster) slowly() func(*hostConfig) {
	f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Delay: 100 * time.Microsecond})
	return through(f)
}

func through(dev blockdev.Device) func(*hostConfig) {
	return func(cfg *hostConfig) {
		cfg.open = func(string, bool) (blockdev.Device, layout.Superblock, int, error) {
			sb, copyUsed, err := lockspace.FindLockspace(dev)
			return dev, sb, copyUsed, err
		}
	}
}

// received fails the test unless a value comes.
func received[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	within(t, what, func() { v = <-c })
	return v
}

// within fails the test unless f returns.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(generous):
		t.Fatalf("%s takes for ever", what)
	}
}
