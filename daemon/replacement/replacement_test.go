package replacement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/lockspace/replace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// shelf is a lockspace on several disks, with spare disks, for hosts in a bubble.
type shelf struct {
	t       *testing.T
	several *lockspacetest.Several
	paths   []string
	disks   map[string]*disktest.Memory

	mu     sync.Mutex // guards failed
	failed map[string]bool
}

var errFailed = errors.New("the disk has failed")

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func subtest(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

func newShelf(t *testing.T, disks, spares int) *shelf {
	s := &shelf{t: t, several: lockspacetest.NewSeveral(t, disks, 8, 8, time.Now().Add(-time.Hour)),
		disks: map[string]*disktest.Memory{}, failed: map[string]bool{}}
	// A process that was cut off ends with its lease.
	t.Cleanup(func() { time.Sleep(time.Minute) })
	for range spares {
		s.several.Disks = append(s.several.Disks, disktest.NewMemory(layout.HeadSize, 512, 512))
	}
	for i, disk := range s.several.Disks {
		path := fmt.Sprint("disk", i+1)
		s.paths = append(s.paths, path)
		s.disks[path] = disk
	}
	return s
}

// fail makes a disk fail for all hosts.
func (s *shelf) fail(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[path] = true
}

// config returns that of a host, which uses the disks until allow returns an error for one of its requests. nil:
// always.
func (s *shelf) config(id int, allow func(op blockdev.Op) error) daemon.Config {
	dir := s.t.TempDir()
	return daemon.Config{
		Devices: s.paths, HostID: id, Name: fmt.Sprintf("db%d", id), RuntimeDir: dir, StateDir: dir, Clock: clocktest.Clock{},
		Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
		Disks: lockspace.DiskOptions{Open: func(path string, readOnly bool) (lockspace.Disk, error) {
			disk, ok := s.disks[path]
			if !ok {
				return nil, fmt.Errorf("open %s: no such file", path)
			}
			info := disk.Open().Info()
			info.Path, info.ReadOnly = path, readOnly
			h := blockdev.NewHandle(info, func(r blockdev.Request) error { return s.serve(path, r, allow) }, func() error { return nil })
			return unlocked{&h}, nil
		}},
	}
}

// host joins a host, which leaves at the end of the test.
func (s *shelf) host(id int) *daemon.Host {
	s.t.Helper()
	h, err := daemon.Join(s.t.Context(), s.config(id, nil))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, h.Close(context.Background())) })
	return h
}

// hold acquires a lock.
func (s *shelf) hold(h *daemon.Host, name string) *locks.Hold {
	s.t.Helper()
	hold, err := h.Acquire(s.t.Context(), locks.Request{Name: name})
	require.NoError(s.t, err)
	return hold
}

// visits are the tokens of holds of one lock, one after the other.
type visits struct {
	*shelf
	last layout.Ticket
}

// visit acquires and releases the lock on each host.
func (v *visits) visit(hosts ...*daemon.Host) {
	v.t.Helper()
	for _, h := range hosts {
		hold := v.hold(h, "z")
		require.Greater(v.t, hold.Token(), v.last, "tokens grow")
		v.last = hold.Token()
		require.NoError(v.t, hold.Release())
	}
}

func (s *shelf) serve(path string, r blockdev.Request, allow func(op blockdev.Op) error) error {
	s.mu.Lock()
	failed := s.failed[path]
	s.mu.Unlock()
	if failed {
		return errFailed
	}
	if allow != nil {
		if err := allow(r.Op); err != nil {
			return err
		}
	}
	dev := s.disks[path].Open()
	switch r.Op {
	case blockdev.OpRead:
		return dev.Read(r.Bytes, r.Off)
	case blockdev.OpWrite:
		return dev.Write(r.Bytes, r.Off)
	}
	return dev.Zero(r.Off, r.N)
}

// unlocked is a disk that no other process of the machine uses.
type unlocked struct{ blockdev.Device }

func (unlocked) Lock(off, n int64) error { return nil }

// replace replaces a disk, as another process.
func (s *shelf) replace(old, fresh string, allow func(op blockdev.Op) error, force ...bool) (*Replaced, error) {
	cfg := s.config(0, allow)
	ctx, cancel := context.WithTimeout(s.t.Context(), 100*s.several.SB.Lease)
	defer cancel()
	return Replace(ctx, cfg, Order{Old: old, New: fresh, Force: len(force) > 0, Progress: func(message string) { s.t.Log(message) }})
}

// refused replaces a disk and expects an error, and that no disk changes.
func (s *shelf) refused(old, fresh, why string) error {
	s.t.Helper()
	lists := s.lists()
	_, err := s.replace(old, fresh, nil)
	require.ErrorContains(s.t, err, why)
	require.Equal(s.t, lists, s.lists())
	return err
}

// lists returns the list that each disk has.
func (s *shelf) lists() (all []layout.Members) {
	for _, path := range s.paths {
		sb, _, _ := lockspace.FindSuperblock(s.disks[path].Open())
		all = append(all, sb.Members)
	}
	return all
}

// uses checks which list hosts use.
func (s *shelf) uses(list layout.Members, hosts ...*daemon.Host) {
	s.t.Helper()
	for _, h := range hosts {
		require.Equal(s.t, list, h.Disks().Superblock().Members)
	}
}

// keep sets the value of a lock, and returns it.
func (s *shelf) keep(h *daemon.Host, name string) string {
	s.t.Helper()
	hold := s.hold(h, name)
	value := fmt.Sprint(name, " of ", hold.Token())
	require.NoError(s.t, hold.SetValue(s.t.Context(), []byte(value)))
	require.NoError(s.t, hold.Release())
	return value
}

func (s *shelf) has(h *daemon.Host, name, value string) {
	s.t.Helper()
	v, err := h.Value(s.t.Context(), name)
	require.NoError(s.t, err)
	require.Equal(s.t, value, string(v.Value), name)
}

// TestReplace_OneDiskAfterTheOther_AllKept: in the end no disk is one of the first.
func TestReplace_OneDiskAfterTheOther_AllKept(t *testing.T) {
	for _, disks := range []int{3, 5} {
		subtest(t, fmt.Sprint(disks), func(t *testing.T) {
			s := newShelf(t, disks, disks)
			a, b := s.host(1), s.host(2)
			x, y := s.keep(a, "x"), s.keep(b, "y")
			in := &visits{shelf: s}
			held := s.hold(a, "held")
			for i := range disks {
				if i%2 == 1 {
					s.fail(s.paths[i])
				}
				in.visit(a)
				done, err := s.replace(fmt.Sprint(i+1), s.paths[disks+i], nil)
				require.NoError(t, err)
				require.Empty(t, done.Warning)
				require.Zero(t, done.Unreadable)
				require.Equal(t, s.several.SB.Members.Disks[i], done.Old)
				s.uses(done.Lockspace.Members, a, b)
				s.fail(s.paths[i])
				in.visit(b)
				s.has(a, "x", x)
				s.has(b, "y", y)
			}
			require.NoError(t, held.Err())
			require.NoError(t, held.Release())
			_, created, err := b.Create(t.Context(), "new", 1)
			require.NoError(t, err)
			require.True(t, created)
			s.clean(s.paths[disks:])
		})
	}
}

// clean checks the lockspace without its hosts, which leave.
func (s *shelf) clean(paths []string) {
	s.t.Helper()
	cfg := s.config(0, nil)
	cfg.Disks.ReadOnly = true
	dev, _, _, err := lockspace.OpenDisks(paths, cfg.Disks)
	require.NoError(s.t, err)
	defer dev.Close()
	found, err := check.Check(s.t.Context(), dev, check.Options{})
	require.NoError(s.t, err)
	require.Empty(s.t, found.Findings)
}

// give makes the paths of the members that a host uses those of the next hosts, as bakeryctl does.
func (s *shelf) give(h *daemon.Host) {
	s.paths = nil
	for _, m := range lockspace.MemberDisks(h.Disks()) {
		if s.disks[m.Name] != nil {
			s.paths = append(s.paths, m.Name)
		}
	}
}

// TestReplace_AnyWriteFails_NextRunCompletes ends the process at each of its writes in turn. Hosts continue, and
// another process replaces the disk, by the same one or by another one.
func TestReplace_AnyWriteFails_NextRunCompletes(t *testing.T) {
	for run := range 80 {
		after, fresh := run/2, []string{"disk4", "disk5"}[run%2]
		subtest(t, fmt.Sprint(after, fresh), func(t *testing.T) {
			s := newShelf(t, 3, 2)
			a, b := s.host(1), s.host(2)
			x, y := s.keep(a, "x"), s.keep(b, "y")
			s.keep(a, "z") // a half-written slot of the directory's lock may keep hosts from creating locks, until its host is dead
			held := s.hold(a, "held")
			s.give(a)
			var writes atomic.Int64
			done, err := s.replace("2", "disk4", func(op blockdev.Op) error {
				if op != blockdev.OpRead && writes.Add(1) > int64(after) || writes.Load() > int64(after) {
					return disktest.ErrCrashed
				}
				return nil
			})
			if writes.Load() <= int64(after) {
				require.NoError(t, err)
				require.Empty(t, done.Warning)
			}
			in := &visits{shelf: s}
			in.visit(a, b)
			time.Sleep(2 * s.several.SB.Lease) // in virtual time: a notices what it has to
			s.give(a)
			done, err = s.replace("2", fresh, nil)
			require.NoError(t, err)
			s.uses(done.Lockspace.Members, a, b)
			require.Equal(t, mirror.Up, a.Disks().Members()[1].State)
			s.fail("disk2")
			s.fail("disk1")
			in.visit(a, b)
			s.has(a, "x", x)
			s.has(b, "y", y)
			require.NoError(t, held.Err())
			require.NoError(t, held.Release())
		})
	}
}

// TestReplace_NotPossible_ChangesNothing lists the reasons that only a host of the lockspace can see.
func TestReplace_NotPossible_ChangesNothing(t *testing.T) {
	subtest(t, "a second disk is down", func(t *testing.T) {
		s := newShelf(t, 3, 1)
		s.host(1)
		s.fail("disk3")
		require.ErrorIs(t, s.refused("2", "disk4", "2 of the other disks must be up, 1 up now"), ErrRefused)
	})
	subtest(t, "a second disk is down for a host", func(t *testing.T) {
		s := newShelf(t, 3, 1)
		s.host(1)
		disk := disktest.NewFaulty(s.disks["disk3"].Open(), disktest.FaultyOptions{})
		cfg := s.view(map[string]blockdev.Device{"disk3": disk})
		cfg.HostID = 2
		b, err := daemon.Join(t.Context(), cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, b.Close(context.Background())) }()
		disk.Inject(disktest.Fault{Hang: true})
		defer disk.RemoveFaults()
		time.Sleep(2 * s.several.SB.Lease)
		require.ErrorIs(t, s.refused("2", "disk4", "host 2 (db0) writes to 1 of the other disks, 2 needed"), ErrRefused)
		disk.RemoveFaults()
		time.Sleep(s.several.SB.Lease)
		_, err = s.replace("2", "disk4", nil)
		require.NoError(t, err)
	})
	subtest(t, "another position is vacant", func(t *testing.T) {
		s := newShelf(t, 3, 1)
		sb := s.several.SB
		sb.Members.Disks[2], sb.Members.Epoch = layout.UUID{}, 2
		for sb.Position = 1; sb.Position <= 2; sb.Position++ {
			lockspacetest.PutSuperblocks(t, s.several.Disks[sb.Position-1].Open(), sb)
		}
		require.ErrorIs(t, s.refused("2", "disk4", "bakeryctl disk replace 3 NEW"), ErrRefused)
	})
	subtest(t, "no host id", func(t *testing.T) {
		s := newShelf(t, 3, 1)
		for id := range 8 {
			s.host(id + 1)
		}
		require.ErrorIs(t, s.refused("2", "disk4", "no host id is free"), lease.ErrFull)
	})
	subtest(t, "names", func(t *testing.T) {
		s := newShelf(t, 3, 1)
		require.ErrorIs(t, s.refused("4", "disk4", "want 1 to 3"), replace.ErrNoMember)
		require.ErrorIs(t, s.refused("disk4", "disk4", "give the position"), replace.ErrNoMember)
		require.ErrorIs(t, s.refused("1", "disk2", "it is member 2"), replace.ErrMember)
		s.refused("1", "disk9", "open disk9")
	})
}

// TestReplace_DiskItself_IsFilledAgain: a member that lost its contents. As long as it has them, it stays, and
// only the list is written again.
func TestReplace_DiskItself_IsFilledAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 0)
		a := s.host(1)
		x := s.keep(a, "x")
		for range 2 {
			done, err := s.replace("disk2", "disk2", nil)
			require.NoError(t, err)
			require.Equal(t, done.Old, done.New)
			s.uses(done.Lockspace.Members, a)
			s.has(a, "x", x)
			s.clean(s.paths)
			require.NoError(t, s.disks["disk2"].Open().Zero(0, layout.HeadSize))
			_ = s.refused("2", "disk2", "it is disk 2 itself, without its contents")
			done, err = s.replace("2", "disk2", nil, true)
			require.NoError(t, err)
			require.NotEqual(t, done.Old, done.New)
			s.uses(done.Lockspace.Members, a)
		}
		s.fail("disk1")
		s.has(a, "x", x)
	})
}

// halfWritten puts an entry on two disks of three.
func (s *shelf) halfWritten() layout.Entry {
	e := layout.Entry{Lock: 3, Name: "half", Permits: 1, Creation: 5, Token: layout.MakeTicket(9, 7), Sequence: 1}
	sb := s.several.SB
	buf := blockdev.Alloc(sb.Geometry.Stride)
	require.NoError(s.t, sb.Space().EncodeEntry(buf, e))
	for _, position := range []int{1, 2} {
		layout.PlaceCopy(buf, position)
		require.NoError(s.t, s.several.Disks[position-1].Open().Write(buf, sb.Geometry.Entry(e.Lock)))
	}
	return e
}

// TestReplace_EntryIsSettledByTheOldDisk_IsKept: it is on one of the disks that stay, which is no majority.
func TestReplace_EntryIsSettledByTheOldDisk_IsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 1)
		s.halfWritten()
		a := s.host(1)
		done, err := s.replace("2", "disk4", nil)
		require.NoError(t, err)
		require.Zero(t, done.Unreadable)
		s.fail("disk1")
		list, err := a.Locks(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Locks, 1)
		require.Equal(t, "half", list.Locks[0].Name)
	})
}

// TestReplace_SlotOfALiveHostIsSettledByTheOldDisk_HostWritesItAgain: its slot in the directory's lock, and an entry,
// are on one of the disks that stay.
func TestReplace_SlotOfALiveHostIsSettledByTheOldDisk_HostWritesItAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 1)
		a := s.host(1)
		s.keep(a, "x")
		synctest.Wait()
		disk, at := s.several.Disks[2].Open(), s.several.SB.Geometry.Slot(0, 1)
		before := blockdev.Alloc(s.several.SB.Geometry.Stride)
		require.NoError(t, disk.Read(before, at))
		s.keep(a, "y")
		synctest.Wait()
		require.NoError(t, disk.Write(before, at))
		s.halfWritten()
		_, err := s.replace("2", "disk4", nil)
		require.NoError(t, err)
		list, err := a.Locks(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Locks, 3)
	})
}

// TestReplace_DirectoryCannotBeSettled_KeepsTheDisk: another host intends another entry there (CONFLICT). All hosts
// use the disks as before.
func TestReplace_DirectoryCannotBeSettled_KeepsTheDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, 3, 1)
		e := s.halfWritten()
		sb := s.several.SB
		e.Name, e.Permits, e.Creation = "", 0, 7
		put := &lockspacetest.Several{T: t, Disks: s.several.Disks[:3], SB: sb}
		put.Put(sb.Geometry.Slot(0, 5), func(buf []byte) error {
			return sb.Space().EncodeSlot(buf, layout.Slot{Lock: 0, Host: 5, Incarnation: 7, Generation: 1, Sequence: 1, Creation: 1,
				Ticket: layout.MakeTicket(9, 5), Value: layout.Intent(e).Value()})
		})
		put.Put(sb.Geometry.Host(5), func(buf []byte) error {
			return sb.Space().EncodeHost(buf, layout.HostRecord{ID: 5, Incarnation: 7, Generation: 1, Sequence: 9, State: layout.StateLeft, ReadHorizon: 8})
		})
		a := s.host(1)
		x := s.keep(a, "x")
		_, err := s.replace("2", "disk4", nil)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, "half written")
		time.Sleep(2 * sb.Lease) // in virtual time: a notices what it has to
		list := a.Disks().Superblock().Members
		require.Equal(t, sb.Members.Disks, list.Disks)
		require.Greater(t, list.Epoch, sb.Members.Epoch)
		require.Equal(t, []layout.Members{list, list, list}, s.lists()[:3])
		require.Equal(t, layout.StateLeft, s.ends())
		s.fail("disk1")
		s.has(a, "x", x)
	})
}

func TestFollows(t *testing.T) {
	t.Parallel()
	const epoch = 7
	record := func(state layout.HostState, horizon int, epoch uint64) lockspace.HostRow {
		return lockspace.HostRow{ID: 1, Record: layout.HostRecord{ID: 1, State: state, Incarnation: 5, ReadHorizon: horizon, Epoch: epoch}}
	}
	unreadable := lockspace.HostRow{ID: 1, Err: errFailed}
	for name, c := range map[string]struct {
		row    lockspace.HostRow
		h      lease.Host
		late   bool
		policy layout.Policy
		want   bool
	}{
		"live":                          {row: record(layout.StateLive, 8, epoch), want: true},
		"live, older":                   {row: record(layout.StateLive, 8, epoch-1)},
		"live, newer":                   {row: record(layout.StateLive, 8, epoch+1)},
		"live, older, dead":             {row: record(layout.StateLive, 8, 1), h: lease.Host{Incarnation: 5, Gone: true}, want: true},
		"live, older, another died":     {row: record(layout.StateLive, 8, 1), h: lease.Host{Incarnation: 4, Gone: true}},
		"live, older, late":             {row: record(layout.StateLive, 8, 1), h: lease.Host{Incarnation: 5, Settled: true}, late: true},
		"live, older, overwritten":      {row: record(layout.StateLive, 8, 1), h: lease.Host{Incarnation: 6, Settled: true}, want: true},
		"live, not covering":            {row: record(layout.StateLive, 0, epoch)},
		"live, not covering, settled":   {row: record(layout.StateLive, 0, epoch), h: lease.Host{Incarnation: 5, Settled: true}, want: true},
		"joining":                       {row: record(layout.StateJoining, 8, epoch)},
		"joining, settled":              {row: record(layout.StateJoining, 8, epoch), h: lease.Host{Incarnation: 5, Settled: true}, want: true},
		"joining, older, settled":       {row: record(layout.StateJoining, 8, 1), h: lease.Host{Incarnation: 5, Settled: true}},
		"joining, older, late":          {row: record(layout.StateJoining, 8, 1), h: lease.Host{Incarnation: 5, Settled: true}, late: true, want: true},
		"joining, older, overwritten":   {row: record(layout.StateJoining, 8, 1), h: lease.Host{Incarnation: 6, Settled: true}, want: true},
		"joining, hides another":        {row: record(layout.StateJoining, 8, 1), h: lease.Host{Incarnation: 5}, late: true},
		"left":                          {row: record(layout.StateLeft, 8, 1), want: true},
		"left, never live":              {row: record(layout.StateLeft, 0, 1)},
		"left, never live, settled":     {row: record(layout.StateLeft, 0, 1), h: lease.Host{Incarnation: 5, Settled: true}, want: true},
		"unreadable":                    {row: unreadable},
		"unreadable, abandoned":         {row: unreadable, h: lease.Host{Abandoned: true}, want: true},
		"unreadable, abandoned, manual": {row: unreadable, h: lease.Host{Abandoned: true}, policy: layout.PolicyManual},
	} {
		require.Equal(t, c.want, follows(c.row, c.h, epoch, c.late, c.policy), name)
	}
}
