package format

import (
	"context"
	"fmt"
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

func TestFormatWithForceWaitsForOldHosts(t *testing.T) {
	for _, stall := range []time.Duration{0, oldLease / 20, oldLease / 2, oldLease * 5 / 6} {
		t.Run(fmt.Sprintf("a renewal stalls for %v", stall), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := disktest.NewMemory(1<<20, 512, 4096)
				host := liveHost(2, "db2")
				old := oldLockspace(t, disk, host)
				r := &renewer{stall: stall}
				r.run(t, disk.Open(), old, host)
				time.Sleep(oldLease / 5) // in the stall, if there is one
				o := formatOptions("new")
				var told []string
				o.Force, o.Progress = true, func(m string) { told = append(told, m) }
				result, err := FormatDevice(t.Context(), disk.Open(), o)
				require.NoError(t, err)
				now := time.Now()
				require.WithinDuration(t, now, result.Superblock.Formatted, time.Millisecond)
				<-r.done
				require.Greater(t, now, r.deadline(), "both lockspaces had a live host")
				require.Contains(t, told[0], "waiting 1.2s for the leases of the old lockspace to end")
				require.Equal(t, "new", requireOneLockspace(t, disk, nil, old))
			})
		})
	}
}

func TestFormatWithForce_StateOfAHost_DecidesTheWait(t *testing.T) {
	for name, test := range map[string]struct {
		host    func(r *layout.HostRecord)
		damaged bool
		wait    time.Duration
	}{
		"watchdog":   {func(r *layout.HostRecord) { r.WatchdogArmed, r.WatchdogSeconds = true, 7 }, false, 8200 * time.Millisecond},
		"left":       {func(r *layout.HostRecord) { r.State = layout.StateLeft }, false, 0},
		"unreadable": {func(r *layout.HostRecord) { r.State = layout.StateLeft }, true, 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := disktest.NewMemory(1<<20, 512, 4096)
				host := liveHost(2, "db2")
				test.host(&host)
				old := oldLockspace(t, disk, host)
				if test.damaged {
					lockspacetest.Damage(t, disk.Open(), old.Geometry.Host(2))
				}
				o := formatOptions("new")
				o.Force = true
				begin := time.Now()
				_, err := FormatDevice(t.Context(), disk.Open(), o)
				require.NoError(t, err)
				if test.wait == 0 {
					require.Zero(t, time.Since(begin))
				}
				require.GreaterOrEqual(t, time.Since(begin), test.wait)
				require.Equal(t, "new", requireOneLockspace(t, disk, nil, old))
			})
		})
	}
}

func TestFormatGivesUpOnHostThatDoesNotLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := disktest.NewMemory(1<<20, 512, 4096)
		host := liveHost(3, "db3")
		old := oldLockspace(t, disk, host)
		r := &renewer{heedless: true}
		r.run(t, disk.Open(), old, host)
		o := formatOptions("new")
		o.Force = true
		_, err := FormatDevice(t.Context(), disk.Open(), o)
		r.stop()
		require.ErrorIs(t, err, ErrHostAlive)
		require.ErrorContains(t, err, "host 3 (db3) still renews its lease")
		require.ErrorContains(t, err, "formatted again with force")
		require.Empty(t, requireOneLockspace(t, disk, nil, old))
	})
}

// TestFormatInterruptedWaitBeginsAgain: after an interruption the wait is repeated in full.
func TestFormatInterruptedWaitBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := disktest.NewMemory(1<<20, 512, 4096)
		old := oldLockspace(t, disk, liveHost(2, "db2"))
		o := formatOptions("new")
		o.Force = true
		ctx, cancel := context.WithTimeout(t.Context(), oldLease/2)
		defer cancel()
		_, err := FormatDevice(ctx, disk.Open(), o)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, _, err = lockspace.FindLockspace(disk.Open())
		require.ErrorIs(t, err, lockspace.ErrNoLockspace)
		require.ErrorIs(t, err, lockspace.ErrInterrupted)
		require.ErrorContains(t, err, `over lockspace "old" (`+old.UUID.String()+")")

		o.Force = false
		_, err = FormatDevice(t.Context(), disk.Open(), o)
		require.ErrorIs(t, err, ErrOccupied)
		require.ErrorContains(t, err, `the rest of an interrupted format over lockspace "old"`)
		require.ErrorContains(t, err, "host 2 (db2)")

		o.Force = true
		begin := time.Now()
		f := disktest.NewFaulty(disk.Open(), disktest.FaultyOptions{})
		_, err = FormatDevice(t.Context(), &crashAt{Faulty: f, landed: 5000}, o) // in zeroing
		require.ErrorIs(t, err, disktest.ErrCrashed)
		require.GreaterOrEqual(t, time.Since(begin), 1200*time.Millisecond)
		_, _, err = lockspace.FindLockspace(disk.Open())
		require.ErrorIs(t, err, lockspace.ErrInterrupted, "the mark is the last to go")

		_, err = FormatDevice(t.Context(), disk.Open(), o)
		require.NoError(t, err)
		require.Equal(t, "new", requireOneLockspace(t, disk, nil, old))
	})
}

// TestFormatOverRemains: without both superblocks the lease is not known, and the longest one is
// assumed.
func TestFormatOverRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := disktest.NewMemory(1<<20, 512, 4096)
		host := liveHost(2, "db2")
		old := oldLockspace(t, disk, host)
		dev := disk.Open()
		lockspacetest.Damage(t, dev, old.Geometry.Superblock(0))
		lockspacetest.Damage(t, dev, old.Geometry.Superblock(1))
		o := formatOptions("new")
		_, err := FormatDevice(t.Context(), disk.Open(), o)
		require.ErrorIs(t, err, ErrOccupied)
		require.ErrorContains(t, err, "the remains of lockspace "+old.UUID.String()+", whose superblock is lost, joined by host 2 (db2)")
		o.Force = true
		begin := time.Now()
		_, err = FormatDevice(t.Context(), disk.Open(), o)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), 72*time.Minute)
		require.Equal(t, "new", requireOneLockspace(t, disk, nil, old))
	})
}

// diskBefore is the contents of a device before it is formatted.
type diskBefore struct {
	name         string
	leaseUnknown bool // whether a torn write may hide the lease
	prepare      func(t *testing.T, disk *disktest.Memory) layout.Superblock
}

var disksBefore = []diskBefore{
	{"blank", false, func(*testing.T, *disktest.Memory) layout.Superblock { return layout.Superblock{} }},
	{"data", false, func(t *testing.T, disk *disktest.Memory) layout.Superblock {
		p := blockdev.Alloc(512)
		p[5] = 1
		require.NoError(t, disk.Open().Write(p, 64<<10))
		return layout.Superblock{}
	}},
	{"lockspace", false, func(t *testing.T, disk *disktest.Memory) layout.Superblock {
		return oldLockspace(t, disk, liveHost(1, "a"), liveHost(3, "c"))
	}},
	{"lockspace of none", false, func(t *testing.T, disk *disktest.Memory) layout.Superblock { return oldLockspace(t, disk) }},
	{"lockspace without its superblock", false, func(t *testing.T, disk *disktest.Memory) layout.Superblock {
		old := oldLockspace(t, disk, liveHost(1, "a"))
		lockspacetest.Damage(t, disk.Open(), 0)
		return old
	}},
	{"lockspace without its copy", true, func(t *testing.T, disk *disktest.Memory) layout.Superblock {
		old := oldLockspace(t, disk, liveHost(1, "a"))
		lockspacetest.Damage(t, disk.Open(), old.Geometry.Superblock(1))
		return old
	}},
	{"remains", true, func(t *testing.T, disk *disktest.Memory) layout.Superblock {
		old := oldLockspace(t, disk, liveHost(1, "a"))
		lockspacetest.Damage(t, disk.Open(), 0)
		lockspacetest.Damage(t, disk.Open(), old.Geometry.Superblock(1))
		return old
	}},
}

// oldHostsInUse reports whether a record on the disk still shows a host of the old lockspace.
func oldHostsInUse(t *testing.T, disk *disktest.Memory, old layout.Superblock) bool {
	if old.Geometry.Stride == 0 {
		return false
	}
	rows, err := lockspace.ReadHostTable(disk.Open(), old.Space())
	require.NoError(t, err)
	found := false
	for _, r := range rows {
		found = found || r.Err == nil && r.InUse()
	}
	return found
}

// interruptedFormat formats with one interruption, checks the disk, and then completes it.
func interruptedFormat(t *testing.T, before diskBefore, stride int, format func(disk *disktest.Memory, o Options) error) (completed bool) {
	disk := disktest.NewMemory(1<<20, 512, 512)
	old := before.prepare(t, disk)
	was := lockspacetest.Contents(t, disk)
	o := formatOptions("new")
	o.Force, o.Stride = true, stride
	err := format(disk, o)
	found := requireOneLockspace(t, disk, was, old)
	if err == nil {
		require.Equal(t, "new", found)
	}
	inUse := found != "new" && oldHostsInUse(t, disk, old)
	begin := time.Now()
	_, againErr := FormatDevice(t.Context(), disk.Open(), o)
	require.NoError(t, againErr)
	require.Equal(t, "new", requireOneLockspace(t, disk, was, old))
	if inUse {
		require.GreaterOrEqual(t, time.Since(begin), 1200*time.Millisecond)
	}
	if !before.leaseUnknown {
		require.Less(t, time.Since(begin), 2*time.Second)
	}
	return err == nil
}

// TestFormatCrash crashes the host at every write of a format. The write lands in part or whole.
func TestFormatCrash(t *testing.T) {
	t.Parallel()
	for _, before := range disksBefore {
		for _, stride := range []int{512, 2048} {
			for _, landed := range []int{0, 100, 512, 2000, 5000, disktest.All} {
				t.Run(fmt.Sprintf("%s, stride %d, %d landed", before.name, stride, landed), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						for nth := 0; ; nth++ {
							require.Less(t, nth, 50)
							if interruptedFormat(t, before, stride, func(disk *disktest.Memory, o Options) error {
								f := disktest.NewFaulty(disk.Open(), disktest.FaultyOptions{Seed: 1})
								_, err := FormatDevice(t.Context(), &crashAt{Faulty: f, left: nth, landed: landed}, o)
								return err
							}) {
								require.GreaterOrEqual(t, nth, 2)
								return
							}
						}
					})
				})
			}
		}
	}
}

// TestFormatCancel cancels a format at every request.
func TestFormatCancel(t *testing.T) {
	t.Parallel()
	for _, before := range disksBefore {
		t.Run(before.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for nth := 0; ; nth += 1 + nth/4 { // most requests are reads of the wait
					if interruptedFormat(t, before, 512, func(disk *disktest.Memory, o Options) error {
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						_, err := FormatDevice(ctx, &cancelAt{Device: disk.Open(), left: nth, cancel: cancel}, o)
						return err
					}) {
						return
					}
					require.Less(t, nth, 30000)
				}
			})
		})
	}
}

func TestFirstNonZero(t *testing.T) {
	const size = 2*readChunk + 512
	memory := disktest.NewMemory(4<<20, 512, 512)
	var done []int64
	d := &disk{dev: memory.Open(), area: size}
	progress := Options{Counter: func(_ string, n, total int64, _ bool) {
		require.EqualValues(t, size, total)
		done = append(done, n)
	}}.progress("", "", size)
	at, err := d.firstNonZero(t.Context(), progress, 0)
	require.NoError(t, err)
	require.EqualValues(t, -1, at)
	require.Equal(t, []int64{readChunk, 2 * readChunk, size}, done)

	p := blockdev.Alloc(512)
	for _, want := range []int64{0, 1, 511, 512, readChunk - 1, readChunk, size - 1} {
		p[want%512] = 1
		require.NoError(t, d.dev.Write(p, want/512*512))
		at, err := d.firstNonZero(t.Context(), nil, 0)
		require.NoError(t, err)
		require.Equal(t, want, at)
		at, err = d.firstNonZero(t.Context(), nil, want/512*512+512)
		require.NoError(t, err)
		require.EqualValues(t, -1, at, "before the offset")
		clear(p)
		require.NoError(t, d.dev.Write(p, want/512*512))
	}

	faulty := disktest.NewFaulty(memory.Open(), disktest.FaultyOptions{})
	faulty.Inject(disktest.Fault{Op: blockdev.OpRead, From: readChunk, To: readChunk + 1, Err: unix.EIO})
	d.dev = faulty
	_, err = d.firstNonZero(t.Context(), nil, 0)
	require.ErrorIs(t, err, unix.EIO)
}
