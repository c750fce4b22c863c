package daemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestLoss_MemberHangs_JoinsAgain: two members hang, and the lease ends. One of them returns: the same process
// joins again and grants locks. The requests of the term before keep the other one from use until they have
// returned (FIFO), and the intent of the lock that was created last (RETURNED).
func TestLoss_MemberHangs_JoinsAgain(t *testing.T) {
	for name, hangs := range map[string]disktest.Fault{
		"all":    {Hang: true},
		"writes": {Op: blockdev.OpWrite, Hang: true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			l := newLocked(t)
			c := newCluster(t, 8, 4)
			paths, configure := l.paths()
			_, otherwise := l.paths()
			other := c.host(2, otherwise)
			r := c.run(1, configure)
			first := r.d
			two := paths[2].Inject(hangs)
			require.NoError(t, acquire(t, first, locks.Request{Name: "x"}).Release())
			one := paths[1].Inject(disktest.Fault{Hang: true})
			within(t, "the loss", func() { <-first.Lost() })
			one.Release()
			again := r.term()
			require.NotEqual(t, first.mem.Incarnation(), again.mem.Incarnation())
			for range 3 {
				require.NoError(t, acquire(t, again, locks.Request{Name: "x"}).Release())
				require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
			}
			time.Sleep(time.Hour)
			require.NoError(t, again.Err())
			late := again.Disks().Members()[2]
			require.NotEqual(t, mirror.Up, late.State)
			if name == "writes" {
				require.ErrorIs(t, late.Err, blockdev.ErrBusy)
			}
			_, _, err := again.Create(t.Context(), "y", 1)
			require.ErrorIs(t, err, api.ErrInFlight)
			require.Error(t, other.Remove(t.Context(), "x", false), "host 1 may write its entry")

			two.Release()
			eventually(t, "the member is used again", func() bool {
				m := again.Disks().Members()[2]
				return m.State == mirror.Up && m.Behind == 0
			})
			eventually(t, "host 1 creates locks", func() bool {
				_, _, err := again.Create(t.Context(), "y", 1)
				return err == nil
			})
			eventually(t, "its intent is gone", func() bool { return other.Remove(t.Context(), "x", false) == nil })
			require.NoError(t, again.Err())
		})
	}
}

// locked is a lockspace on three disks that are locked as the kernel locks real ones. A copy that lands over a
// later one fails the test.
type locked struct {
	*lockspacetest.Several
	t   *testing.T
	dir string
	mu  sync.Mutex // held while a copy lands
}

func newLocked(t *testing.T) *locked {
	return &locked{Several: lockspacetest.NewSeveral(t, 3, 8, 4, time.Now()), t: t, dir: t.TempDir()}
}

// paths returns the disks as one host sees them, and what makes it use them.
func (l *locked) paths() (paths []*disktest.Faulty, configure func(*Config)) {
	names := []string{"a", "b", "c"}
	for i, disk := range l.Disks {
		paths = append(paths, disktest.NewFaulty(l.lands(i, disk.Open()), disktest.FaultyOptions{}))
	}
	l.t.Cleanup(func() {
		for _, p := range paths {
			p.RemoveFaults()
		}
	})
	return paths, func(cfg *Config) {
		cfg.Open, cfg.Devices = nil, names
		cfg.Disks = lockspace.DiskOptions{Open: func(path string, readOnly bool) (lockspace.Disk, error) {
			return l.open(filepath.Join(l.dir, path), paths[slices.Index(names, path)])
		}}
	}
}

// lands returns a disk that checks the copies that it gets.
func (l *locked) lands(position int, disk blockdev.Device) blockdev.Device {
	codec := lockspacetest.Codec{Space: l.SB.Space()}
	h := blockdev.NewHandle(disk.Info(), func(r blockdev.Request) error {
		if r.Op == blockdev.OpRead {
			return disk.Read(r.Bytes, r.Off)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		before := blockdev.Alloc(len(r.Bytes))
		if err := disk.Read(before, r.Off); err != nil {
			return err
		}
		had, err := codec.Version(before, r.Off, position)
		require.NoError(l.t, err)
		gets, err := codec.Version(r.Bytes, r.Off, position)
		require.NoError(l.t, err)
		if gets.Less(had) {
			l.t.Errorf("disk %d: version %v of the record at %d lands over %v", position, gets, r.Off, had)
		}
		return disk.Write(r.Bytes, r.Off)
	}, disk.Close)
	return &h
}

// lockedDisk is an opened disk. Its files are closed, and their locks end, when its requests have returned.
type lockedDisk struct {
	blockdev.Handle
	self, kept *os.File
}

func (l *locked) open(file string, disk *disktest.Faulty) (*lockedDisk, error) {
	self, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	d := &lockedDisk{self: self}
	d.Handle = blockdev.NewHandle(disk.Info(), func(r blockdev.Request) error {
		if r.Op == blockdev.OpRead {
			return disk.Read(r.Bytes, r.Off)
		}
		return disk.Write(r.Bytes, r.Off)
	}, func() error {
		if d.kept != nil {
			d.kept.Close()
		}
		return d.self.Close()
	})
	return d, nil
}

func (d *lockedDisk) Lock(off, n int64) error { return blockdev.LockFile(d.self, off, n) }

func (d *lockedDisk) Keep(file *os.File) { d.kept = file }

// TestClose_HoldersTookAllTheTime_StillWaitsForAHungMember: a host that an operator evicted must not end
// with an error, after which systemd would start it again.
func TestClose_HoldersTookAllTheTime_StillWaitsForAHungMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		set, disks := lockspacetest.NewSeveral(t, 3, 8, 4, time.Now()).Open()
		h, err := Join(t.Context(), newCluster(t, 8, 4).config(1, through(set)))
		require.NoError(t, err)
		hung := disks[2].Inject(disktest.Fault{Op: blockdev.OpWrite, Hang: true})
		<-hung.Hit()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.NoError(t, h.Close(ctx))
		hung.Release()
		require.NoError(t, set.AwaitRequests())
	})
}

// TestClose_MemberHangs_NextJoins: the host ends without an error. The next process may have its id, and uses
// the member when the requests to it have returned.
func TestClose_MemberHangs_NextJoins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLocked(t)
		c := newCluster(t, 8, 4)
		paths, configure := l.paths()
		cfg := c.config(1, configure)
		h, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		hung := paths[2].Inject(disktest.Fault{Op: blockdev.OpWrite, Hang: true})
		<-hung.Hit()
		require.NoError(t, h.Close(t.Context()))
		next, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, acquire(t, next, locks.Request{Name: "x"}).Release())
		late := next.Disks().Members()[2]
		require.NotEqual(t, mirror.Up, late.State)
		require.ErrorIs(t, late.Err, blockdev.ErrBusy)
		hung.Release()
		eventually(t, "the member is used again", func() bool { return next.Disks().Members()[2].State == mirror.Up })
		require.NoError(t, next.Close(t.Context()))
	})
}
