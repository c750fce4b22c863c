package format

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestFormatSeveral_FailedZeroing_IsReported: no disk has a new superblock.
func TestFormatSeveral_FailedZeroing_IsReported(t *testing.T) {
	disks := newDisks(3)
	old := oldSeveral(t, disks, nil)
	devs := openAll(disks)
	f := disktest.NewFaulty(devs[1], disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Op: blockdev.OpZero, Err: unix.EIO})
	devs[1] = f
	_, err := FormatDevices(t.Context(), devs, forced("new"))
	require.ErrorIs(t, err, unix.EIO)
	require.ErrorContains(t, err, "format /dev/disk2: ")
	require.ErrorContains(t, err, "the old contents are lost, and the disks are not usable until they are formatted again with force")
	for _, disk := range disks {
		_, _, err := lockspace.FindSuperblock(disk.Open())
		require.ErrorIs(t, err, lockspace.ErrInterrupted)
		require.ErrorContains(t, err, old.UUID.String())
	}
}

// TestFormatSeveral_FailedMark_SaysWhatIsLost: before the first disk is marked, nothing is.
func TestFormatSeveral_FailedMark_SaysWhatIsLost(t *testing.T) {
	for at := range 3 {
		disks := newDisks(3)
		oldSeveral(t, disks, nil)
		before := contentsOf(t, disks)
		devs := openAll(disks)
		f := disktest.NewFaulty(devs[at], disktest.FaultyOptions{})
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, Err: unix.EIO})
		devs[at] = f
		_, err := FormatDevices(t.Context(), devs, forced("new"))
		require.ErrorIs(t, err, unix.EIO)
		require.ErrorContains(t, err, "format "+diskPath(at)+": wipe superblocks: ")
		if at == 0 {
			require.NotContains(t, err.Error(), "lost")
			require.Equal(t, before, contentsOf(t, disks))
		} else {
			require.ErrorContains(t, err, "the old contents are lost")
		}
	}
}

// doomedHost formats several disks, and crashes at its nth write or zeroing on any of them.
type doomedHost struct {
	mu     sync.Mutex
	left   int // guarded by mu
	landed int
	disks  []*disktest.Faulty
}

type doomedDisk struct {
	*disktest.Faulty
	host *doomedHost
}

func (h *doomedHost) open(disks []*disktest.Memory) (devs []blockdev.Device) {
	for _, dev := range openAll(disks) {
		f := disktest.NewFaulty(dev, disktest.FaultyOptions{Seed: 1})
		h.disks = append(h.disks, f)
		devs = append(devs, &doomedDisk{f, h})
	}
	return devs
}

func (d *doomedDisk) count() {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if d.host.left == 0 {
		for _, other := range d.host.disks {
			if other != d.Faulty {
				other.Crash()
			}
		}
		d.Inject(disktest.Fault{Crash: true, Landed: d.host.landed})
	}
	d.host.left--
}

func (d *doomedDisk) Write(p []byte, off int64) error {
	d.count()
	return d.Faulty.Write(p, off)
}

func (d *doomedDisk) Zero(off, n int64) error {
	d.count()
	return d.Faulty.Zero(off, n)
}

// severalBefore are the contents of three disks before they are formatted together.
var severalBefore = []struct {
	name string
	// prepare returns all disks, of which the first three are formatted, and their lockspace.
	prepare func(t *testing.T) ([]*disktest.Memory, layout.Superblock)
}{
	{"blank", func(t *testing.T) ([]*disktest.Memory, layout.Superblock) { return newDisks(3), layout.Superblock{} }},
	{"lockspace on three", func(t *testing.T) ([]*disktest.Memory, layout.Superblock) {
		disks := newDisks(3)
		return disks, oldSeveral(t, disks, map[*layout.HostRecord][]int{severalHost(1, "a"): {0, 1, 2}, severalHost(3, "c"): {1, 2}})
	}},
	{"lockspace on five", func(t *testing.T) ([]*disktest.Memory, layout.Superblock) {
		disks := newDisks(5)
		return disks, oldSeveral(t, disks, map[*layout.HostRecord][]int{severalHost(1, "a"): {2, 3, 4}})
	}},
	{"one lockspace, data, nothing", func(t *testing.T) ([]*disktest.Memory, layout.Superblock) {
		disks := newDisks(3)
		putCopy(t, disks[1], 512, 8192, 1, func(p []byte) error { p[3] = 1; return nil })
		return disks, oldLockspace(t, disks[0], liveHost(1, "a"))
	}},
}

// requireNoMixture checks what a host has left that crashed while it formatted the first three disks.
func requireNoMixture(t *testing.T, disks []*disktest.Memory, before [][]byte, old layout.Superblock, stride int) (complete bool) {
	t.Helper()
	usable := map[string]int{} // number of disks by name of their lockspace
	erased, records := false, false
	for i, disk := range disks {
		now := lockspacetest.Contents(t, disk)
		sb, _, err := lockspace.FindSuperblock(disk.Open())
		if err == nil {
			usable[sb.Name]++
		}
		if i >= 3 {
			require.Equal(t, before[i], now)
			continue
		}
		// The old lockspaces have a stride of 512: their superblocks end at 1024.
		erased = erased || !slices.Equal(before[i][1024:], now[1024:])
		rest := slices.Clone(now[:layout.HeadSize])
		clear(rest[:512])
		clear(rest[stride:][:512])
		records = records || !slices.Equal(rest, make([]byte, len(rest)))
	}
	if usable["new"] > 0 {
		require.False(t, records, "a disk has the new lockspace, and one has old records")
	}
	if erased {
		require.Less(t, usable["old"], old.Members.Majority(), "the old lockspace is usable and in part erased")
	}
	return usable["new"] == 3
}

// TestFormatSeveral_Crash crashes the host at every write of a format, which lands in part or whole.
func TestFormatSeveral_Crash(t *testing.T) {
	t.Parallel()
	for _, before := range severalBefore {
		for _, stride := range []int{512, 2048} {
			for _, landed := range []int{0, 100, 512, 5000, disktest.All} {
				t.Run(fmt.Sprintf("%s, stride %d, %d landed", before.name, stride, landed), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						for nth := 0; ; nth++ {
							require.Less(t, nth, 50)
							disks, old := before.prepare(t)
							was := contentsOf(t, disks)
							o := forced("new")
							o.Stride = stride
							host := &doomedHost{left: nth, landed: landed}
							_, err := FormatDevices(t.Context(), host.open(disks[:3]), o)
							complete := requireNoMixture(t, disks, was, old, stride)
							if err == nil {
								require.True(t, complete)
								require.GreaterOrEqual(t, nth, 6)
								return
							}
							require.ErrorIs(t, err, disktest.ErrCrashed)
							inUse := false
							for _, disk := range disks[:3] {
								inUse = inUse || oldHostsInUse(t, disk, old)
							}
							begin := time.Now()
							_, err = FormatDevices(t.Context(), openAll(disks[:3]), o)
							require.NoError(t, err)
							require.True(t, requireNoMixture(t, disks, was, old, stride))
							if inUse {
								require.GreaterOrEqual(t, time.Since(begin), 1200*time.Millisecond)
							}
							require.Less(t, time.Since(begin), 2*time.Second)
						}
					})
				})
			}
		}
	}
}

// TestFormatSeveral_Interrupted_IsRecognized: an end of the wait leaves the mark on each disk, and
// the next format repeats the wait.
func TestFormatSeveral_Interrupted_IsRecognized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := newDisks(3)
		old := oldSeveral(t, disks, map[*layout.HostRecord][]int{severalHost(1, "a"): {0, 1}})
		ctx, cancel := context.WithTimeout(t.Context(), oldLease/2)
		defer cancel()
		_, err := FormatDevices(ctx, openAll(disks), forced("new"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "format /dev/disk1, /dev/disk2, /dev/disk3: ")
		for i, disk := range disks {
			_, _, err := lockspace.FindSuperblock(disk.Open())
			require.ErrorIs(t, err, lockspace.ErrInterrupted)
			mark, ok := lockspace.FindFormatMark(lockspacetest.Contents(t, disk))
			require.True(t, ok)
			want := old
			want.Position = i + 1
			require.Equal(t, want, mark)
		}
		_, err = FormatDevices(t.Context(), openAll(disks), formatOptions("new"))
		require.ErrorIs(t, err, ErrOccupied)
		require.ErrorContains(t, err, "format /dev/disk3: device is not empty: it holds the rest of an interrupted format over lockspace \"old\"")
		begin := time.Now()
		_, err = FormatDevices(t.Context(), openAll(disks), forced("new"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), 1200*time.Millisecond)
	})
}
