package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// slowThird makes the disks take their time, and the third one so much of it that no read waits for it.
func slowThird(cfg *Config) {
	open := cfg.Disks.Open
	cfg.Disks.Open = func(path string, readOnly bool) (lockspace.Disk, error) {
		disk, err := open(path, readOnly)
		if err != nil {
			return nil, err
		}
		slow := disktest.NewFaulty(disk, disktest.FaultyOptions{})
		slow.Inject(disktest.Fault{Delay: time.Millisecond})
		if path == "/dev/c" {
			slow.Inject(disktest.Fault{Op: blockdev.OpRead, Delay: 5 * time.Millisecond})
		}
		return unlocked{slow}, nil
	}
}

// TestHosts_MemberDiskIsWiped_EachTakesItsVote (IDENTITY): one is idle, one is loaded, and the other disks answer
// first. The hosts continue, and their records are not written to that disk any more.
func TestHosts_MemberDiskIsWiped_EachTakesItsVote(t *testing.T) {
	for name, c := range map[string]struct {
		wipe func(c *changing)
		why  string
	}{
		"zeroes": {func(c *changing) {
			dev := c.Disks[2].Open()
			require.NoError(c.Several.T, dev.Zero(0, dev.Info().Size))
		}, "superblock at byte 0: all zeroes: never formatted"},
		"other lockspace": {func(c *changing) {
			sb := c.Several.SB
			sb.UUID, sb.Position = layout.UUID{8}, 3
			lockspacetest.PutSuperblocks(c.Several.T, c.Disks[2].Open(), sb)
		}, "is of lockspace"},
	} {
		runInBubble(t, name, func(t *testing.T) { testWiped(t, c.wipe, c.why) })
	}
}

func testWiped(t *testing.T, wipe func(c *changing), why string) {
	c := newChanging(t)
	var logs [2]bytes.Buffer
	notes := []*notebook{newNotebook(t), newNotebook(t)}
	var hosts []*Host
	for i := range logs {
		hosts = append(hosts, c.host(i+1, c.on(c.paths[:3]...), slowThird, notes[i].in, func(cfg *Config) {
			cfg.Logger = slog.New(slog.NewTextHandler(&logs[i], &slog.HandlerOptions{Level: slog.LevelWarn}))
		}))
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	var passed atomic.Int32
	load.Go(func() {
		for ; ctx.Err() == nil; passed.Add(1) {
			if err := acquire(t, hosts[1], locks.Request{Name: "x"}).Release(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	time.Sleep(4 * time.Second)
	for _, h := range hosts {
		require.Equal(t, "up", disksOf(t, h)[2].State)
	}
	wipe(c)
	time.Sleep(4 * time.Second)
	wiped, at := lockspacetest.Contents(t, c.Disks[2]), passed.Load()
	time.Sleep(c.Several.SB.Lease) // several renewals
	require.Greater(t, passed.Load(), at)
	stop()
	load.Wait()
	synctest.Wait()
	require.Equal(t, wiped, lockspacetest.Contents(t, c.Disks[2]))
	const remedy = "the disk lost its contents: run bakeryctl disk replace 3 NEW"
	for i, h := range hosts {
		require.NoError(t, h.Err())
		disks := disksOf(t, h)
		require.Equal(t, "down", disks[2].State)
		require.Equal(t, []string{"up", "up"}, []string{disks[0].State, disks[1].State})
		require.Contains(t, disks[2].Error, why)
		require.Contains(t, disks[2].Remedy, remedy)
		require.Regexp(t, `^time=\S* level=WARN msg="member disk is lost" disk=3 device=/dev/c up=2 of=3 err=".*`+why+`.*" remedy=".*`+remedy+`.*"\n$`, logs[i].String())
		said := notes[i].diskEvents()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "disk_lost: disk 3 (/dev/c), 2 of 3 up: ")
		require.Contains(t, said[0], why)
	}
}
