package replace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// lockable is a disk in memory, which no other process uses.
type lockable struct{ blockdev.Device }

func (lockable) Lock(off, n int64) error { return nil }

// world is a lockspace on several disks, with a disk for the position at index 1.
type world struct {
	*lockspacetest.Several
	t     *testing.T
	fresh *disktest.Memory
}

const position = 2

func newWorld(t *testing.T, disks int) *world {
	s := lockspacetest.NewSeveral(t, disks, 4, 8, time.Now())
	return &world{s, t, disktest.NewMemory(512<<10, 512, 512)}
}

// vacant opens the members except for the one at the position.
func (w *world) vacant() blockdev.Device {
	set, faulty := w.Open()
	faulty[position-1].Crash()
	require.Error(w.t, faulty[position-1].Read(blockdev.Alloc(512), 0))
	set.Recheck(position-1, errors.New("vacant"))
	w.t.Cleanup(func() { _ = set.Close() })
	return set
}

// disk opens the new disk.
func (w *world) disk(dev blockdev.Device) *Disk {
	d, err := Open("new", w.SB, position, func(string, bool) (lockspace.Disk, error) { return lockable{dev}, nil })
	require.NoError(w.t, err)
	return d
}

// put writes a record on the disks with some positions.
func (w *world) put(off int64, encode func(buf []byte) error, positions ...int) {
	buf := blockdev.Alloc(w.SB.Geometry.Stride)
	require.NoError(w.t, encode(buf))
	for _, p := range positions {
		layout.PlaceCopy(buf, p)
		require.NoError(w.t, w.Disks[p-1].Open().Write(buf, off))
	}
}

func (w *world) entry(lock int, name string, sequence uint64, positions ...int) {
	w.put(w.SB.Geometry.Entry(lock), func(buf []byte) error {
		return w.SB.Space().EncodeEntry(buf, layout.Entry{Lock: lock, Name: name, Permits: 1, Creation: 5, Token: layout.MakeTicket(9, 1), Sequence: sequence})
	}, positions...)
}

func (w *world) slot(lock, host int, sequence uint64, positions ...int) {
	w.put(w.SB.Geometry.Slot(lock, host), func(buf []byte) error {
		return w.SB.Space().EncodeSlot(buf, layout.Slot{Lock: lock, Host: host, Incarnation: 7, Generation: 1, Sequence: sequence, Creation: 5})
	}, positions...)
}

func (w *world) host(id int, sequence uint64, positions ...int) {
	w.put(w.SB.Geometry.Host(id), func(buf []byte) error {
		return w.SB.Space().EncodeHost(buf, layout.HostRecord{ID: id, Incarnation: 7, Generation: 1, State: layout.StateLive, Sequence: sequence})
	}, positions...)
}

// filled puts records of all kinds, of which the newest version is on a majority, or on fewer.
func (w *world) filled() {
	all := []int{1, 2, 3, 4, 5}[:len(w.Disks)]
	most := all[len(all)/2:]
	w.host(1, 4, all...)
	w.host(2, 4, all...)
	w.host(2, 5, most...)
	w.entry(1, "x", 1, all...)
	w.entry(2, "y", 1, all...)
	w.entry(2, "z", 2, all[0], all[2])
	if len(all) == 5 {
		w.entry(2, "z", 2, all[3])
	}
	w.slot(0, 1, 3, all...)
	w.slot(1, 1, 1, all...)
	w.slot(1, 1, 2, most...)
	w.slot(8, 4, 9, all[len(all)/2+1:]...) // every majority of those that stay shows it
}

// records returns which records of a disk are blank, and the versions of the others; an error for those
// that are no record.
func (w *world) records(disk *disktest.Memory, position int) (found map[int64]any) {
	found = map[int64]any{}
	contents := lockspacetest.Contents(w.t, disk)
	stride := int64(w.SB.Geometry.Stride)
	for off := 2 * stride; off < w.SB.Geometry.Size(); off += stride {
		if block := contents[off : off+stride]; !bytes.Equal(block, make([]byte, stride)) {
			v, err := w.SB.Space().CopyVersion(block, off, position)
			if found[off] = v; err != nil {
				found[off] = "unreadable"
			}
		}
	}
	return found
}

// replaced returns the list with the new disk.
func (w *world) replaced(d *Disk) layout.Superblock {
	sb := w.SB
	sb.Members.Epoch++
	sb.Members.Disks[position-1] = d.UUID()
	return sb
}

// always lets every write begin.
func always() error { return nil }

// complete fills the disk and admits it.
func (w *world) complete(d *Disk, from blockdev.Device) (bad int, err error) {
	if bad, err = d.Fill(w.t.Context(), from, always, nil); err == nil {
		err = d.Admit(w.replaced(d))
	}
	return bad, err
}

func TestFill_AllRecords_NewestVersions(t *testing.T) {
	t.Parallel()
	for _, disks := range []int{3, 5} {
		w := newWorld(t, disks)
		w.filled()
		bad, err := w.complete(w.disk(w.fresh.Open()), w.vacant())
		require.NoError(t, err)
		require.Zero(t, bad)
		g := w.SB.Geometry
		require.Equal(t, map[int64]any{
			g.Host(1): layout.CopyVersion{Epoch: 1, Counter: 4}, g.Host(2): layout.CopyVersion{Epoch: 1, Counter: 5},
			g.Entry(1): layout.CopyVersion{Epoch: uint64(layout.MakeTicket(9, 1)), Counter: 1}, g.Entry(2): layout.CopyVersion{Epoch: uint64(layout.MakeTicket(9, 1)), Counter: 2},
			g.Slot(0, 1): layout.CopyVersion{Epoch: 1, Counter: 3}, g.Slot(1, 1): layout.CopyVersion{Epoch: 1, Counter: 2},
			g.Slot(8, 4): layout.CopyVersion{Epoch: 1, Counter: 9},
		}, w.records(w.fresh, position))
		head := lockspacetest.Contents(t, w.fresh)
		for which := range 2 {
			sb, err := layout.DecodeSuperblock(head[g.Superblock(which):], which)
			require.NoError(t, err)
			require.Equal(t, position, sb.Position)
			require.Equal(t, w.SB.Members.Epoch+1, sb.Members.Epoch)
			require.Equal(t, position, w.replacedOf(sb))
		}
	}
}

// replacedOf returns at which position a list differs from the one before.
func (w *world) replacedOf(sb layout.Superblock) (at int) {
	for i, id := range sb.Members.Disks {
		if id != w.SB.Members.Disks[i] {
			at += i + 1
		}
	}
	return at
}

// TestFill_NoValidRecord_StaysUnreadable: neither a record that cannot be read nor one that would become
// settled by one more copy is blank on the new disk, or valid.
func TestFill_NoValidRecord_StaysUnreadable(t *testing.T) {
	t.Parallel()
	for _, disks := range []int{3, 5} {
		w := newWorld(t, disks)
		w.filled()
		g := w.SB.Geometry
		w.entry(3, "half", 2, []int{3, 4, 5}[disks/2-1:disks-2]...)
		for _, p := range []int{1, 3, 4, 5} {
			if p <= disks {
				lockspacetest.Damage(t, w.Disks[p-1].Open(), g.Slot(1, 1))
			}
		}
		bad, err := w.complete(w.disk(w.fresh.Open()), w.vacant())
		require.NoError(t, err)
		require.Equal(t, 2, bad)
		found := w.records(w.fresh, position)
		require.Equal(t, "unreadable", found[g.Entry(3)])
		require.Equal(t, "unreadable", found[g.Slot(1, 1)])
		require.Equal(t, layout.CopyVersion{Epoch: 1, Counter: 5}, found[g.Host(2)])
	}
}

// TestFill_AnyWriteFails_NextRunCompletes interrupts each write in turn, which lands or not, and each time
// another run begins again on what was left.
func TestFill_AnyWriteFails_NextRunCompletes(t *testing.T) {
	t.Parallel()
	for _, landed := range []int{0, 512, disktest.All} {
		for after := 0; ; after++ {
			w := newWorld(t, 3)
			w.filled()
			require.NoError(t, w.fresh.Open().Write(disktest.Random(1, 4096), 300<<10), "outside the lockspace")
			f := disktest.NewFaulty(w.fresh.Open(), disktest.FaultyOptions{})
			crash := f.Inject(disktest.Fault{Op: blockdev.OpAny, After: after, Crash: true, Landed: landed})
			set := w.vacant()
			first := w.disk(f)
			_, err := w.complete(first, set)
			again := w.disk(w.fresh.Open())
			if crash.Fired() == 0 {
				require.NoError(t, err)
				require.Greater(t, after, 8)
				break
			}
			require.ErrorIs(t, err, disktest.ErrCrashed)
			again.sb = w.SB
			if sb, _, err := lockspace.FindSuperblock(w.fresh.Open()); err == nil { // valid, and a member by the list that it has
				require.Equal(t, w.replaced(first).Members, sb.Members)
				again.sb.Members = sb.Members
			}
			require.NoError(t, again.Check(t.Context(), nil, true), "after %d", after)
			_, err = w.complete(again, set)
			require.NoError(t, err)
			require.Equal(t, w.records(w.Disks[2], 3), w.records(w.fresh, position), "after %d", after)
		}
	}
}

// TestFill_Interrupted_IsMarked: the disk is recognised without force, and is no member.
func TestFill_Interrupted_IsMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.filled()
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("interrupted")
	_, err := w.disk(w.fresh.Open()).Fill(ctx, w.vacant(), always, func(step string, _, _ int64, _ bool) {
		if step == "copying to the new disk" {
			cancel(reason)
		}
	})
	require.ErrorIs(t, err, reason)
	_, _, err = lockspace.FindSuperblock(w.fresh.Open())
	require.ErrorIs(t, err, lockspace.ErrInterrupted)
	require.NoError(t, w.disk(w.fresh.Open()).Check(t.Context(), nil, false))

	other := newWorld(t, 3)
	other.SB.UUID[0]++
	other.fresh = w.fresh
	require.ErrorIs(t, other.disk(w.fresh.Open()).Check(t.Context(), nil, false), format.ErrOccupied)
}

// TestAdmit_CopyCannotBeWritten_IsNoMember: the superblock is not written either.
func TestAdmit_CopyCannotBeWritten_IsNoMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	f := disktest.NewFaulty(w.fresh.Open(), disktest.FaultyOptions{})
	d := w.disk(f)
	at := w.SB.Geometry.Superblock(1)
	f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: at, To: at + int64(w.SB.Geometry.Stride), Err: unix.EIO})
	_, err := w.complete(d, w.vacant())
	require.ErrorIs(t, err, unix.EIO)
	_, _, err = lockspace.FindSuperblock(w.fresh.Open())
	require.ErrorIs(t, err, lockspace.ErrInterrupted)
}

func TestCheck_UnfitDisk_IsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.filled()
	member := func(i int) *disktest.Memory { return w.Disks[i] }
	other := lockspacetest.New(t, 4, 8, time.Now())
	other.SB.UUID[1]++
	other.Format()
	data := disktest.NewMemory(512<<10, 512, 512)
	require.NoError(t, data.Open().Write(disktest.Random(1, 512), 8<<10))
	former := disktest.NewMemory(512<<10, 512, 512)
	sb := w.SB
	sb.Members.Disks[position-1], sb.Position = layout.UUID{8}, position
	lockspacetest.PutSuperblocks(t, former.Open(), sb)
	newer := disktest.NewMemory(512<<10, 512, 512)
	sb.Members.Epoch = 2
	lockspacetest.PutSuperblocks(t, newer.Open(), sb)
	for name, c := range map[string]struct {
		disk      *disktest.Memory
		want      error // without force
		withForce error
		text      string
	}{
		"empty":                  {disk: w.fresh},
		"small":                  {disktest.NewMemory(8<<10, 512, 512), lockspace.ErrDeviceSize, lockspace.ErrDeviceSize, "it has 8192 bytes"},
		"large blocks":           {disktest.NewMemory(512<<10, 4096, 4096), lockspace.ErrStride, lockspace.ErrStride, "512 bytes apart"},
		"physical blocks":        {disktest.NewMemory(512<<10, 512, 4096), lockspace.ErrStride, lockspace.ErrStride, "4096 physically"},
		"data":                   {data, format.ErrOccupied, nil, "the first byte that is not zero at 8192"},
		"another lockspace":      {other.Disk, ErrOtherLockspace, ErrOtherLockspace, "stop its hosts"},
		"member elsewhere":       {member(2), ErrMember, ErrMember, "it is member 3; give another disk"},
		"copy of the member":     {member(position - 1), ErrMember, nil, "it has the contents of disk 2, which is not used at this path"},
		"member in the past":     {former, ErrFormer, nil, "it was disk 2 of this lockspace until another one replaced it; "},
		"member by a newer list": {newer, ErrFormer, nil, "it is disk 2 by a newer list (epoch 2) than the other disks have (epoch 1); add its path"},
	} {
		for force, want := range map[bool]error{false: c.want, true: c.withForce} {
			before := lockspacetest.Contents(t, c.disk)
			err := w.disk(c.disk.Open()).Check(t.Context(), nil, force)
			if require.ErrorIs(t, err, want, "%s, force %v", name, force); err != nil {
				require.ErrorContains(t, err, c.text, name)
			}
			require.Equal(t, before, lockspacetest.Contents(t, c.disk), name)
		}
	}
	used := []lockspace.MemberDisk{{Position: position, Status: mirror.Status{Name: "memory", State: mirror.Up}}}
	for _, force := range []bool{false, true} {
		d := w.disk(member(position - 1).Open())
		require.NoError(t, d.Check(t.Context(), used, force))
		require.Equal(t, !force, d.Present())
	}
}

func TestFindPosition_LostDiskHangs_IsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		defer close(answers)
		hangs := func(string, bool) (lockspace.Disk, error) {
			<-answers
			return nil, errors.New("too late")
		}
		disks := []lockspace.MemberDisk{{Position: 1, Status: mirror.Status{Name: "/dev/lost", State: mirror.Down}}}
		got, err := FindPosition("/dev/lost", disks, hangs)
		require.NoError(t, err)
		require.Equal(t, 1, got)
		_, err = FindPosition("/dev/other", disks, hangs)
		require.ErrorIs(t, err, ErrNoMember)
	})
}

// TestDisk_Files uses files, which have an identity and locks.
func TestDisk_Files(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var paths []string
	for i := range 3 {
		paths = append(paths, filepath.Join(dir, fmt.Sprint("disk", i)))
	}
	_, err := format.Format(t.Context(), paths, format.Options{Hosts: 4, Locks: 8, Lease: time.Second})
	require.NoError(t, err)
	dev, sb, _, err := lockspace.OpenDisks(paths, lockspace.DiskOptions{ReadOnly: true})
	require.NoError(t, err)
	disks := lockspace.MemberDisks(dev)
	require.NoError(t, dev.Close())
	find := func(name string, want int) {
		t.Helper()
		got, err := FindPosition(name, disks, OpenDisk)
		if want == 0 {
			require.ErrorIs(t, err, ErrNoMember)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	find("3", 3)
	find(sb.Members.Disks[1].String(), 2)
	find(paths[2], 3)
	same := filepath.Join(dir, "same")
	require.NoError(t, unix.Symlink(paths[0], same))
	find(same, 1)
	disks[1].Name, disks[1].State = "/dev/lost", mirror.Down
	find("/dev/lost", 2)
	other := filepath.Join(dir, "other")
	_, err = format.Format(t.Context(), []string{other + "1", other + "2", other + "3"}, format.Options{Hosts: 4, Locks: 8, Lease: time.Second})
	require.NoError(t, err)
	disks[1].Name = other + "2" // the path is known, and has other contents now
	find(other+"2", 2)
	find(other+"3", 0)
	for _, name := range []string{"0", "4", "/dev/none", layout.UUID{5}.String()} {
		find(name, 0)
	}

	d, err := Open(same, sb, position, OpenDisk)
	require.NoError(t, err)
	require.NoError(t, unix.Truncate(paths[0], 0)) // without a superblock its identity is left
	require.NoError(t, unix.Truncate(paths[0], 1<<20))
	require.ErrorIs(t, d.Check(t.Context(), disks, true), ErrMember)
	require.NoError(t, d.Close())

	d, err = Open(paths[1], sb, position, OpenDisk)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.Lock())
	rival, err := Open(paths[1], sb, position, OpenDisk)
	require.NoError(t, err)
	defer rival.Close()
	require.ErrorIs(t, rival.Lock(), blockdev.ErrBusy)
	require.NoError(t, d.Close())
	require.NoError(t, rival.Lock())
}
