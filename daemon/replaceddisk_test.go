package daemon

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/memberdisks"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// changing is a lockspace on three disks, of which the list changes, and a fourth disk.
type changing struct {
	*lockspacetest.Several
	*cluster
	paths []string
}

func newChanging(t *testing.T) *changing {
	c := &changing{lockspacetest.NewSeveral(t, 3, 8, 4, time.Now()), newCluster(t, 8, 4), []string{"/dev/a", "/dev/b", "/dev/c", "/dev/d"}}
	c.Disks = append(c.Disks, disktest.NewMemory(c.Disks[0].Open().Info().Size, 512, 512))
	return c
}

// unlocked is a disk that this process has for itself.
type unlocked struct{ blockdev.Device }

func (unlocked) Lock(int64, int64) error { return nil }

// on returns the change of a Config for a host that has paths.
func (c *changing) on(paths ...string) func(*Config) {
	return func(cfg *Config) {
		cfg.Open, cfg.Devices = nil, paths
		cfg.Disks.Open = func(path string, _ bool) (lockspace.Disk, error) {
			return unlocked{c.Disks[slices.Index(c.paths, path)].Open()}, nil
		}
	}
}

// publish writes the next list on disks, in which a disk or none is at position 3.
func (c *changing) publish(disk layout.UUID, on ...int) {
	c.Several.SB.Members.Epoch++
	c.Several.SB.Members.Disks[2] = disk
	for _, i := range on {
		sb := c.Several.SB
		sb.Position = min(i+1, 3)
		lockspacetest.PutSuperblocks(c.Several.T, c.Disks[i].Open(), sb)
	}
}

// shown waits until hosts show the list, and returns their slots in a lock on a disk.
func (c *changing) shown(hosts ...int) {
	c.Several.T.Helper()
	time.Sleep(c.Several.SB.Lease) // four renewals
	synctest.Wait()
	for _, host := range hosts {
		p := blockdev.Alloc(512)
		require.NoError(c.Several.T, c.Disks[0].Open().Read(p, c.Several.SB.Geometry.Host(host)))
		r, err := c.Several.SB.Space().DecodeHost(p, host)
		require.NoError(c.Several.T, err)
		require.Equal(c.Several.T, layout.StateLive, r.State)
		require.Equal(c.Several.T, c.Several.SB.Members.Epoch, r.Epoch)
	}
}

// TestHosts_MemberDiskIsReplaced_HoldsContinue: one host has no path to the new disk, and one joins between. Only these
// warn of it.
func TestHosts_MemberDiskIsReplaced_HoldsContinue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, n, of := newChanging(t), newNotebook(t), newNotebook(t)
		logs := make([]bytes.Buffer, 4)
		logIn := func(host int) func(*Config) {
			return func(cfg *Config) {
				cfg.Logger = slog.New(slog.NewTextHandler(&logs[host], &slog.HandlerOptions{Level: slog.LevelWarn}))
			}
		}
		a, b := c.host(1, c.on(c.paths...), n.in, logIn(1)), c.host(2, c.on(c.paths[:3]...), of.in, logIn(2))
		x, y := acquire(t, a, locks.Request{Name: "x"}), acquire(t, b, locks.Request{Name: "y"})
		incarnations := []uint64{a.mem.Incarnation(), b.mem.Incarnation()}

		c.publish(layout.UUID{}, 0, 1)
		c.shown(1, 2)
		old := lockspacetest.Contents(t, c.Disks[2])
		joins := c.host(3, c.on(c.paths...), logIn(3))
		require.NoError(t, acquire(t, joins, locks.Request{Name: "z"}).Release())
		c.shown(3)
		require.Equal(t, "vacant", disksOf(t, a)[2].State)

		c.copyRecords()
		c.publish(layout.UUID{9, 4}, 3, 0, 1)
		c.shown(1, 2, 3)
		require.NoError(t, x.Release())
		require.NoError(t, acquire(t, joins, locks.Request{Name: "x"}).Release())
		require.NoError(t, y.Release())
		synctest.Wait()
		require.Equal(t, old, lockspacetest.Contents(t, c.Disks[2]))
		p := blockdev.Alloc(512)
		require.NoError(t, c.Disks[3].Open().Read(p, c.Several.SB.Geometry.Host(1)))
		_, err := c.Several.SB.Space().CopyVersion(p, c.Several.SB.Geometry.Host(1), 3)
		require.NoError(t, err)
		require.Equal(t, incarnations, []uint64{a.mem.Incarnation(), b.mem.Incarnation()})
		disks := disksOf(t, a)
		require.Equal(t, []string{"up", "/dev/d"}, []string{disks[2].State, disks[2].Device})
		require.Equal(t, "down", disksOf(t, b)[2].State)

		require.Empty(t, logs[1].String())
		require.Regexp(t, `msg="member disk is lost" disk=3 device=/dev/c up=2 of=3 err="memory is .*" remedy="add the path of the new disk `, logs[2].String())
		require.Regexp(t, `msg="position of a member disk is vacant" disk=3 remedy="if no replacement is running, run bakeryctl disk replace 3 NEW"\n$`, logs[3].String())

		require.Equal(t, []string{
			"replaced: disk 3 is now vacant, epoch 2",
			"replaced: disk 3 is now " + disks[2].UUID.String() + ", epoch 3",
			"disk_back: disk 3 (/dev/d), 3 of 3 up",
		}, n.diskEvents())
		require.Contains(t, of.diskEvents()[2], "disk_lost: disk 3 (/dev/c), 2 of 3 up: memory is disk ")
	})
}

// TestHost_MemberDiskHangs_IsReported: no request fails. Then one does, and the check hangs.
func TestHost_MemberDiskHangs_IsReported(t *testing.T) {
	for why, err := range map[string]error{"a request has not returned for 5 s": nil, "its check has not returned for 5 s, after: write ": unix.EIO} {
		t.Run(why, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { testHangs(t, why, err) })
		})
	}
}

func testHangs(t *testing.T, why string, err error) {
	c, n := newChanging(t), newNotebook(t)
	slow := disktest.NewFaulty(c.Disks[2].Open(), disktest.FaultyOptions{})
	a := c.host(1, c.on(c.paths[:3]...), n.in, func(cfg *Config) {
		open := cfg.Disks.Open
		cfg.Disks.Open = func(path string, readOnly bool) (lockspace.Disk, error) {
			if path == "/dev/c" && !readOnly {
				return unlocked{slow}, nil
			}
			return open(path, readOnly)
		}
	})
	slow.Inject(disktest.Fault{Hang: true})
	if err != nil {
		slow.Inject(disktest.Fault{Op: blockdev.OpWrite, Times: 1, Err: err})
	}
	defer slow.RemoveFaults() // or the host could not be closed
	time.Sleep(8 * time.Second)
	require.Equal(t, "hangs", disksOf(t, a)[2].State)
	require.NoError(t, acquire(t, a, locks.Request{Name: "x"}).Release())
	slow.RemoveFaults()
	time.Sleep(2 * memberdisks.WatchEvery)
	said := n.diskEvents()
	require.Len(t, said, 2)
	require.Contains(t, said[0], "disk_lost: disk 3 (/dev/c) hangs, 2 of 3 up: "+why)
	require.Equal(t, "disk_back: disk 3 (/dev/c), 3 of 3 up", said[1])
}

// diskEvents returns the events of member disks.
func (n *notebook) diskEvents() (said []string) {
	for _, e := range n.all(events.Query{}) {
		if e.Kind == events.Replaced || e.Kind == events.DiskLost || e.Kind == events.DiskBack {
			said = append(said, string(e.Kind)+": "+e.Reason)
		}
	}
	return said
}

// TestStatus_NewestListIsNotFound_Warns: two disks are replaced, and one host has no path to a new one.
func TestStatus_NewestListIsNotFound_Warns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newChanging(t)
		a, b := c.host(1, c.on(c.paths...)), c.host(2, c.on(c.paths[:3]...))
		fresh := layout.UUID{9, 4}
		c.publish(layout.UUID{}, 0, 1)
		c.shown(1, 2)
		c.copyRecords()
		c.publish(fresh, 3, 0, 1)
		c.shown(1, 2)
		require.Empty(t, warningsOf(t, b))

		c.Several.SB.Members.Disks[0] = layout.UUID{}
		c.publish(fresh, 1, 3)
		time.Sleep(c.Several.SB.Lease)
		synctest.Wait()
		require.Empty(t, warningsOf(t, a))
		require.Equal(t, []string{"this host does not find the disks of the newest list of members: " +
			"add the paths of all member disks to BAKERYD_DEVICE, and restart bakeryd"}, warningsOf(t, b))
	})
}

func warningsOf(t *testing.T, h *Host) []string {
	t.Helper()
	r, err := h.Status()
	require.NoError(t, err)
	return r.Lockspace.Warnings
}

// copyRecords copies the records of the first disk to the fourth, as the one at position 3.
func (c *changing) copyRecords() {
	g := c.Several.SB.Geometry
	p := blockdev.Alloc(int(g.Size()))
	require.NoError(c.Several.T, c.Disks[0].Open().Read(p, 0))
	for at := g.Host(1); at < g.Size(); at += int64(g.Stride) {
		layout.PlaceCopy(p[at:at+int64(g.Stride)], 3)
	}
	require.NoError(c.Several.T, c.Disks[3].Open().Write(p[g.Host(1):], g.Host(1)))
}

func disksOf(t *testing.T, h *Host) []report.Disk {
	t.Helper()
	r, err := h.Status()
	require.NoError(t, err)
	return r.Disks
}
