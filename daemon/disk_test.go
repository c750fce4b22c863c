package daemon

import (
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// faultyHost joins a host whose device can be made to fail. All faults are removed before it
// leaves.
func (c *cluster) faultyHost(id int) (*Host, *disktest.Faulty) {
	c.t.Helper()
	f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
	d := c.host(id, through(f))
	c.t.Cleanup(f.RemoveFaults)
	return d, f
}

// slowly delays each request of a host, as a real disk does. Without that, no time passes in a
// bubble while hosts contend.
func (c *cluster) slowly() func(*Config) {
	f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Delay: 100 * time.Microsecond})
	return through(f)
}

func through(dev blockdev.Device) func(*Config) {
	return func(cfg *Config) {
		cfg.Open = func() (blockdev.Device, error) {
			return dev, nil
		}
	}
}

// restored waits until the entry of a lock is readable.
func (c *cluster) restored(lock int) {
	c.t.Helper()
	eventually(c.t, "the entry is restored", func() bool {
		_, err := c.SB.Space().DecodeEntry(lockspacetest.Contents(c.t, c.Disk)[c.Geo.Entry(lock):], lock)
		return err == nil
	})
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
