package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// faultyHost joins a host whose way to the disk can be made to fail. All faults are healed before it leaves.
func (c *cluster) faultyHost(id int) (*Daemon, *blockdev.Faulty) {
	c.t.Helper()
	f := blockdev.NewFaulty(c.disk.Open(), blockdev.FaultyOptions{})
	d := c.host(id, through(f))
	c.t.Cleanup(f.Heal)
	return d, f
}

// slowly has each request of a host take a time, as on a real disk. Without it no time passes in a bubble while hosts contend.
func (c *cluster) slowly() func(*Config) {
	f := blockdev.NewFaulty(c.disk.Open(), blockdev.FaultyOptions{})
	f.Inject(blockdev.Fault{Delay: 100 * time.Microsecond})
	return through(f)
}

func through(dev blockdev.Device) func(*Config) {
	return func(cfg *Config) {
		cfg.open = func(string, bool) (blockdev.Device, layout.Superblock, int, error) {
			sb, copyUsed, err := lockspace.FindLockspace(dev)
			return dev, sb, copyUsed, err
		}
	}
}

// write puts a record on the disk as some other host would.
func (c *cluster) write(off int64, encode func(buf []byte) error) {
	c.t.Helper()
	buf := blockdev.Alloc(c.geo.Stride)
	require.NoError(c.t, encode(buf))
	require.NoError(c.t, c.disk.Open().Write(buf, off))
}

func (c *cluster) writeEntry(e layout.Entry) {
	c.t.Helper()
	c.write(c.geo.Entry(e.Lock), func(buf []byte) error { return c.sb.Space().EncodeEntry(buf, e) })
}

func (c *cluster) entry(lock int) layout.Entry {
	c.t.Helper()
	buf := blockdev.Alloc(c.geo.Stride)
	require.NoError(c.t, c.disk.Open().Read(buf, c.geo.Entry(lock)))
	e, err := c.sb.Space().DecodeEntry(buf, lock)
	require.NoError(c.t, err)
	return e
}

func (c *cluster) slot(lock, host int) layout.Slot {
	c.t.Helper()
	buf := blockdev.Alloc(c.geo.Stride)
	require.NoError(c.t, c.disk.Open().Read(buf, c.geo.Slot(lock, host)))
	s, err := c.sb.Space().DecodeSlot(buf, lock, host)
	require.NoError(c.t, err)
	return s
}

func (c *cluster) hostRecord(id int) layout.HostRecord {
	c.t.Helper()
	buf := blockdev.Alloc(c.geo.Stride)
	require.NoError(c.t, c.disk.Open().Read(buf, c.geo.Host(id)))
	r, err := c.sb.Space().DecodeHost(buf, id)
	require.NoError(c.t, err)
	return r
}

func (c *cluster) spoil(off int64) {
	c.t.Helper()
	c.write(off, func(buf []byte) error { clear(buf); buf[7] = 7; return nil })
}

// restored waits until the entry of a lock can be read.
func (c *cluster) restored(lock int) {
	c.t.Helper()
	eventually(c.t, "the entry is restored", func() bool {
		_, err := c.sb.Space().DecodeEntry(lockspacetest.Contents(c.t, c.disk)[c.geo.Entry(lock):], lock)
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
