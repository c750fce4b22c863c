package format

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

const oldLease = time.Second

// formatOptions make a small lockspace.
func formatOptions(name string) Options {
	return Options{Name: name, Hosts: 3, Locks: 2, Lease: 10 * time.Second}
}

// FormatDevice formats one device.
func FormatDevice(ctx context.Context, dev blockdev.Device, o Options) (*Result, error) {
	return FormatDevices(ctx, []blockdev.Device{dev}, o)
}

// oldLockspace puts a lockspace with these hosts on a disk, and a slot for each of them.
func oldLockspace(t testing.TB, disk *disktest.Memory, hosts ...layout.HostRecord) layout.Superblock {
	t.Helper()
	o := formatOptions("old")
	o.Lease, o.Force = oldLease, true
	dev := disk.Open()
	result, err := FormatDevice(context.Background(), dev, o)
	require.NoError(t, err)
	sb := result.Superblock
	for _, h := range hosts {
		lockspacetest.PutHost(t, dev, sb, h)
		lockspacetest.PutSlot(t, dev, sb, layout.Slot{Lock: 1, Host: h.ID, Incarnation: h.Incarnation, Creation: 1,
			Phase: layout.Held, Ticket: layout.MakeTicket(77, h.ID)})
	}
	return sb
}

func liveHost(id int, name string) layout.HostRecord {
	return layout.HostRecord{ID: id, Incarnation: 0xabc0 + uint64(id), State: layout.StateLive, Sequence: 5, Name: name, ReadHorizon: id}
}

// renewer is a host of a lockspace that only renews its lease.
type renewer struct {
	stall     time.Duration // between reading the superblocks and the one renewal that is written later
	heedless  bool          // whether it continues although the lockspace is gone
	mu        sync.Mutex
	lostAt    time.Time     // end of its lease
	done      chan struct{} // closed when it gives up
	cancelled chan struct{}
}

func (r *renewer) run(t testing.TB, dev blockdev.Device, sb layout.Superblock, h layout.HostRecord) {
	r.done, r.cancelled = make(chan struct{}), make(chan struct{})
	r.lostAt = time.Now().Add(sb.Lease)
	go func() {
		defer close(r.done)
		for {
			select {
			case <-time.After(sb.Lease / 6):
			case <-r.cancelled:
				return
			}
			if !r.heedless && !r.member(dev, sb) {
				return
			}
			time.Sleep(r.stall)
			r.stall = 0
			if time.Now().After(r.deadline()) {
				return
			}
			t0 := time.Now()
			h.Sequence++
			lockspacetest.PutHost(t, dev, sb, h)
			r.mu.Lock()
			r.lostAt = t0.Add(sb.Lease)
			r.mu.Unlock()
		}
	}()
}

func (r *renewer) deadline() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lostAt
}

func (r *renewer) stop() {
	close(r.cancelled)
	<-r.done
}

// member reports whether a superblock of the lockspace is left, as a host does.
func (r *renewer) member(dev blockdev.Device, sb layout.Superblock) bool {
	p := blockdev.Alloc(2 * sb.Geometry.Stride)
	if dev.Read(p, 0) != nil {
		return false
	}
	for copy := range 2 {
		found, err := layout.DecodeSuperblock(p[copy*sb.Geometry.Stride:], copy)
		if err == nil && found.UUID == sb.UUID {
			return true
		}
	}
	return false
}

// requireOneLockspace checks that a disk holds the complete old lockspace, none, or the complete
// new one, and returns which.
func requireOneLockspace(t testing.TB, disk *disktest.Memory, before []byte, old layout.Superblock) (name string) {
	t.Helper()
	now := lockspacetest.Contents(t, disk)
	sb, _, err := lockspace.FindLockspace(disk.Open())
	if err != nil {
		require.ErrorIs(t, err, lockspace.ErrNoLockspace)
		return ""
	}
	records := slices.Clone(now)[:sb.Geometry.Size()]
	clear(records[:2*sb.Geometry.Stride])
	if sb.UUID == old.UUID {
		was := slices.Clone(before)[:sb.Geometry.Size()]
		clear(was[:2*sb.Geometry.Stride])
		require.Equal(t, was, records, "the old lockspace is not whole")
		return "old"
	}
	require.Equal(t, "new", sb.Name)
	require.Equal(t, make([]byte, len(records)), records, "the new lockspace has something of what was there")
	return "new"
}

// cancelAt is a device that cancels a context when its nth request begins.
type cancelAt struct {
	blockdev.Device
	left   int
	cancel context.CancelFunc
}

func (c *cancelAt) count() {
	if c.left == 0 {
		c.cancel()
	}
	c.left--
}

func (c *cancelAt) Read(p []byte, off int64) error {
	c.count()
	return c.Device.Read(p, off)
}

func (c *cancelAt) Write(p []byte, off int64) error {
	c.count()
	return c.Device.Write(p, off)
}

func (c *cancelAt) Zero(off, n int64) error {
	c.count()
	return c.Device.Zero(off, n)
}

// crashAt is a device whose host crashes at its nth write or zeroing. landed bytes of that reach
// the disk.
type crashAt struct {
	*disktest.Faulty
	left, landed int
}

func (c *crashAt) count() {
	if c.left == 0 {
		c.Inject(disktest.Fault{Crash: true, Landed: c.landed})
	}
	c.left--
}

func (c *crashAt) Write(p []byte, off int64) error {
	c.count()
	return c.Faulty.Write(p, off)
}

func (c *crashAt) Zero(off, n int64) error {
	c.count()
	return c.Faulty.Zero(off, n)
}
