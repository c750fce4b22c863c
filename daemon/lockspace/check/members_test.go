package check

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// several is a lockspace on three disks in memory, with the records of two hosts and two locks.
type several struct {
	t     *testing.T
	sb    layout.Superblock
	geo   layout.Geometry
	disks []*disktest.Memory
	read  []*disktest.Faulty // as Check reads them
	gone  map[int]error      // errors of opening them
}

func newSeveral(t *testing.T) *several {
	s := &several{t: t, geo: layout.Geometry{Stride: 512, Hosts: 5, Locks: 6}, gone: map[int]error{}}
	s.sb = layout.Superblock{UUID: layout.UUID{7}, Name: "test", Geometry: s.geo, Lease: 2 * time.Second,
		Members: layout.Members{Epoch: 1, Positions: 3, Disks: [layout.MaxPositions]layout.UUID{{1}, {2}, {3}}}}
	for range 3 {
		s.disks = append(s.disks, disktest.NewMemory(s.geo.Size(), 512, 512))
	}
	for which := range 2 {
		s.put(s.geo.Superblock(which), func(sb layout.Superblock, p []byte) error { return sb.Encode(p, which) })
	}
	for id := 1; id <= 2; id++ {
		s.host(id, 1)
		s.slot(1, id, 1)
		s.slot(2, id, 1)
		s.entry(id, 1)
	}
	for _, d := range s.disks {
		s.read = append(s.read, disktest.NewFaulty(d.OpenReadOnly(), disktest.FaultyOptions{Seed: 1}))
	}
	return s
}

// put writes a record on the disks with these indexes, on all if there is none.
func (s *several) put(off int64, encode func(sb layout.Superblock, p []byte) error, on ...int) {
	s.t.Helper()
	if len(on) == 0 {
		on = []int{0, 1, 2}
	}
	for _, i := range on {
		sb := s.sb
		sb.Position = i + 1
		p := blockdev.Alloc(s.geo.Stride)
		require.NoError(s.t, encode(sb, p))
		layout.PlaceCopy(p, sb.Position)
		require.NoError(s.t, s.disks[i].Open().Write(p, off))
	}
}

func (s *several) host(id int, sequence uint64, on ...int) {
	s.put(s.geo.Host(id), func(sb layout.Superblock, p []byte) error {
		return sb.Space().EncodeHost(p, layout.HostRecord{ID: id, Incarnation: 100 + uint64(id), State: layout.StateLive, ReadHorizon: 5,
			Generation: 2, Sequence: sequence, Epoch: 1})
	}, on...)
}

func (s *several) slot(lock, host int, sequence uint64, on ...int) {
	s.put(s.geo.Slot(lock, host), func(sb layout.Superblock, p []byte) error {
		return sb.Space().EncodeSlot(p, layout.Slot{Lock: lock, Host: host, Incarnation: 100 + uint64(host), Creation: 5,
			Generation: 2, Sequence: sequence, Ticket: layout.MakeTicket(9, host)})
	}, on...)
}

func (s *several) entry(lock int, sequence uint64, on ...int) { s.named(lock, sequence, "a", on...) }

func (s *several) named(lock int, sequence uint64, name string, on ...int) {
	s.put(s.geo.Entry(lock), func(sb layout.Superblock, p []byte) error {
		return sb.Space().EncodeEntry(p, layout.Entry{Lock: lock, Name: fmt.Sprint(name, lock), Permits: 1, Creation: 5,
			Token: layout.MakeTicket(8, 1), Sequence: sequence})
	}, on...)
}

// list writes the superblocks with another epoch of the list of members.
func (s *several) list(epoch uint64, on ...int) {
	for which := range 2 {
		s.put(s.geo.Superblock(which), func(sb layout.Superblock, p []byte) error { sb.Members.Epoch = epoch; return sb.Encode(p, which) }, on...)
	}
}

func (s *several) damage(off int64, on ...int) {
	for _, i := range on {
		lockspacetest.Damage(s.t, s.disks[i].Open(), off)
	}
}

func (s *several) zero(off int64, i int) {
	require.NoError(s.t, s.disks[i].Open().Write(blockdev.Alloc(s.geo.Stride), off))
}

const setTimeout = time.Second

func (s *several) open() lockspacetest.Fixed {
	s.t.Helper()
	var list []mirror.Member
	for i, d := range s.read {
		list = append(list, mirror.Member{Name: fmt.Sprintf("/dev/disk%d", i), ID: s.sb.Members.Disks[i], Open: func() (blockdev.Device, error) { return d, s.gone[i] }})
	}
	set, err := mirror.Open(list, mirror.Options{Stride: s.geo.Stride, Size: s.geo.Size(), Codec: lockspace.NewCodec(s.sb), ReadOnly: true,
		Check: func(int, blockdev.Device) error { return nil }, Timeout: setTimeout, Patience: setTimeout, Retry: time.Minute})
	require.NoError(s.t, err)
	return lockspacetest.Fixed{Set: set, SB: s.sb}
}

func (s *several) check() *Result {
	s.t.Helper()
	set := s.open()
	defer set.Close()
	done, err := Check(s.t.Context(), set, Options{})
	require.NoError(s.t, err)
	return done
}

func TestCheck_SeveralDisks_Clean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := newSeveral(t).check()
		require.Empty(t, done.Findings)
		require.Equal(t, []int{2, 2, 10}, []int{done.Hosts, done.Locks, done.Records})
		require.Equal(t, Disk{Position: 3, Device: "/dev/disk2", UUID: layout.UUID{3}, State: "up"}, done.Disks[2])
	})
}

func TestCheck_SeveralDisks_Findings(t *testing.T) {
	type want struct {
		severity        Severity
		what            string
		disk            int
		problem, remedy string
		repair          bool
	}
	const replaces, notes = "the next write of the record replaces this copy", "nothing needed"
	for name, test := range map[string]struct {
		change func(s *several)
		want   []want
	}{
		"superblock damaged": {func(s *several) { s.damage(0, 1) }, []want{
			{SeverityWarning, "superblock", 2, "checksum", "from the other one on this disk", true}}},
		"copy damaged": {func(s *several) { s.damage(512, 2) }, []want{
			{SeverityWarning, "copy of the superblock", 3, "checksum", "from the other one on this disk", true}}},
		"superblock zeroed": {func(s *several) { s.zero(0, 1) }, []want{
			{SeverityWarning, "superblock", 2, "it is blank", "from the other one on this disk", true}}},
		"superblocks of a majority damaged": {func(s *several) { s.damage(0, 0, 1) }, []want{
			{SeverityWarning, "superblock", 1, "checksum", "on this disk", true},
			{SeverityWarning, "superblock", 2, "checksum", "on this disk", true},
			{SeverityError, "superblock", 0, "no majority of the disks has a valid copy", "repair it on each disk", false}}},
		"host record damaged": {func(s *several) { s.damage(s.geo.Host(2), 0) }, []want{
			{SeverityWarning, "record of host 2", 1, "checksum", replaces, false}}},
		"entry damaged on a majority": {func(s *several) { s.damage(s.geo.Entry(2), 0, 2) }, []want{
			{SeverityWarning, "directory entry of lock 2", 1, "checksum", "repair the record", false},
			{SeverityWarning, "directory entry of lock 2", 3, "checksum", "repair the record", false},
			{SeverityError, "directory entry of lock 2", 0, "no majority of the disks has a valid copy", "check --repair asks", true}}},
		"of another position": {func(s *several) {
			p := blockdev.Alloc(512)
			require.NoError(s.t, s.disks[0].Open().Read(p, s.geo.Slot(2, 1)))
			require.NoError(s.t, s.disks[1].Open().Write(p, s.geo.Slot(2, 1)))
		}, []want{{SeverityWarning, "slot of host 1 in lock 2", 2, "position 1, want 2", replaces, false}}},
		"of another lockspace": {func(s *several) {
			s.sb.UUID[9] = 9
			s.slot(2, 1, 5, 2)
			s.sb.UUID[9] = 0
		}, []want{{SeverityWarning, "slot of host 1 in lock 2", 3, "uuid 07000000-0000-0000-0009", replaces, false}}},
		"bad sector": {func(s *several) {
			at := s.geo.Slot(2, 1)
			s.read[1].Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Err: unix.EIO})
			s.slot(2, 2, 9, 0, 2) // in the same read
		}, []want{
			{SeverityWarning, "slot of host 1 in lock 2", 2, unix.EIO.Error(), replaces, false},
			{SeverityNote, "slot of host 2 in lock 2", 2, "it has version 2.1, a majority of the disks has 2.9", replaces, false}}},
		"host record behind": {func(s *several) { s.host(1, 8, 0, 2) }, []want{
			{SeverityNote, "record of host 1", 2, "it has version 2.1, a majority of the disks has 2.8", replaces, false}}},
		"lost by one disk": {func(s *several) {
			require.NoError(s.t, s.disks[2].Open().Write(blockdev.Alloc(512), s.geo.Host(1)))
		}, []want{{SeverityNote, "record of host 1", 3, "it has version 0.0, a majority of the disks has 2.1", replaces, false}}},
		"entry unsettled": {func(s *several) { s.entry(2, 8, 1) }, []want{
			{SeverityWarning, "directory entry of lock 2", 0, ".8, is on 1 of the 3 disks that were read", "counts as unreadable until", false}}},
		"slot half-written": {func(s *several) { s.slot(2, 1, 8, 1) }, []want{
			{SeverityNote, "slot of host 1 in lock 2", 0, "2.8, is on 1 of the 3 disks that were read", notes, false}}},
		"entry unsettled as a disk is missing": {func(s *several) {
			s.entry(2, 8, 0, 1)
			s.gone[0] = fs.ErrNotExist
		}, []want{
			{SeverityWarning, "disk 1", 1, "it is missing: file does not exist", "check the disk and its paths", false},
			{SeverityWarning, "directory entry of lock 2", 0, ".8, is on 1 of the 2 disks that were read", "start the disks that are missing", false}}},
		"vacant position": {func(s *several) { s.gone[2] = lockspace.ErrVacant }, []want{
			{SeverityWarning, "disk 3", 3, "its position is vacant: ", "run bakeryctl disk replace 3 NEW", false}}},
		"list behind": {func(s *several) { s.list(2, 0, 2) }, []want{
			{SeverityNote, "superblock", 2, "it has version 1.0, a majority of the disks has 2.0", "the disk counts", false},
			{SeverityNote, "copy of the superblock", 2, "it has version 1.0", "the disk counts", false}}},
		"list half-written": {func(s *several) { s.list(2, 1) }, []want{
			{SeverityWarning, "superblock", 0, "its newest version, 2.0, is on 1 of the 3 disks", "run bakeryctl disk replace", false},
			{SeverityWarning, "copy of the superblock", 0, "its newest version, 2.0", "run bakeryctl disk replace", false}}},
		"blank disk": {func(s *several) { s.gone[0] = fmt.Errorf("superblock: %w", layout.ErrBlank) }, []want{
			{SeverityWarning, "disk 1", 1, "never formatted", "check that the path is right", false}}},
		"contradiction": {func(s *several) { s.named(2, 1, "b", 1) }, []want{
			{SeverityError, "directory entry of lock 2", 0, "copies with the same version", "bakeryctl dump of each disk", false}}},
		"older contradiction": {func(s *several) { s.named(2, 1, "b", 2); s.entry(2, 2, 0, 1) }, []want{
			{SeverityNote, "directory entry of lock 2", 3, ".1, a majority of the disks has", replaces, false}}},
		"contradiction below an unsettled version": {func(s *several) { s.named(2, 1, "b", 1); s.entry(2, 2, 2) }, []want{
			{SeverityWarning, "directory entry of lock 2", 0, ".2, is on 1 of the 3 disks", "counts as unreadable", false}}},
		"failing disk": {func(s *several) { s.gone[0] = unix.EIO }, []want{
			{SeverityWarning, "disk 1", 1, "it is missing: input/output error", "check the disk and its paths", false}}},
		"path fails for a sector": {func(s *several) {
			at := s.geo.Host(1)
			s.read[1].Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Err: unix.ETIMEDOUT})
		}, []want{{SeverityWarning, "record of host 1", 2, unix.ETIMEDOUT.Error(), replaces, false}}},
		"few behind": {func(s *several) {
			for id := 1; id <= 2; id++ {
				s.slot(1, id, 2, 1, 2)
			}
			s.slot(2, 1, 2, 1, 2)
		}, []want{
			{SeverityNote, "slot of host 1 in lock 1", 1, "2.1", replaces, false},
			{SeverityNote, "slot of host 1 in lock 2", 1, "2.1", replaces, false},
			{SeverityNote, "slot of host 2 in lock 1", 1, "2.1", replaces, false}}},
		"many behind": {func(s *several) {
			for id := 1; id <= 2; id++ {
				s.slot(1, id, 2, 1, 2)
				s.slot(2, id, 2, 1, 2)
			}
			for lock := 1; lock <= 3; lock++ {
				s.entry(lock, 1)
				s.damage(s.geo.Entry(lock), 0)
			}
			s.damage(s.geo.Superblock(0), 0)
			s.host(2, 2, 1, 2) // is read after the slots, and has a smaller offset
		}, []want{
			{SeverityWarning, "directory entry of lock 1", 1, "checksum", replaces, false},
			{SeverityWarning, "directory entry of lock 2", 1, "checksum", replaces, false},
			{SeverityWarning, "directory entry of lock 3", 1, "checksum", replaces, false},
			{SeverityNote, "disk 1", 1, "5 copies are older than those of a majority of the disks; the first is the record of host 2", replaces, false},
			{SeverityWarning, "superblock", 1, "checksum", "--repair", true}}},
		"many entries unsettled": {func(s *several) {
			for lock := 1; lock <= 4; lock++ {
				s.entry(lock, 9, 1)
			}
		}, []want{{SeverityWarning, "lock directory", 0, "4 entries are unsettled", "counts as unreadable", false}}},
		"many contradictions": {func(s *several) {
			for lock := 1; lock <= 4; lock++ {
				s.entry(lock, 1)
				s.named(lock, 1, "b", 1)
			}
		}, []want{{SeverityError, "copies", 0, "4 records have copies with one version", "bakeryctl dump of each disk", false}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSeveral(t)
				test.change(s)
				found := s.check().Findings
				require.Len(t, found, len(test.want), "%+v", found)
				for _, w := range test.want {
					i := indexOf(found, w.what, w.disk)
					require.GreaterOrEqual(t, i, 0, "%s on disk %d: %+v", w.what, w.disk, found)
					require.Contains(t, found[i].Problem, w.problem)
					require.Contains(t, found[i].Remedy, w.remedy)
					require.Equal(t, []any{w.severity, w.repair}, []any{found[i].Severity, found[i].Repair}, w.what)
				}
			})
		})
	}
}

func indexOf(found []Finding, what string, disk int) int {
	for i, f := range found {
		if f.What == what && f.Disk == disk {
			return i
		}
	}
	return -1
}

// TestCheck_SeveralDisks_Counts: each disk has the number of its copies, also of those that are one finding.
func TestCheck_SeveralDisks_Counts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		s.gone[2] = unix.ENXIO
		s.damage(s.geo.Host(1), 0)
		for lock := 1; lock <= 2; lock++ {
			s.slot(lock, 1, 1, 0)
		}
		disks := s.check().Disks
		require.Equal(t, []string{"up", "up", "down"}, []string{disks[0].State, disks[1].State, disks[2].State})
		require.Equal(t, unix.ENXIO.Error(), disks[2].Error)
		require.Equal(t, []int{1, 0}, []int{disks[0].Damaged, disks[0].Behind})

		s = newSeveral(t)
		s.damage(s.geo.Host(1), 0)
		s.damage(s.geo.Superblock(1), 0)
		for lock := 1; lock <= 2; lock++ {
			for id := 1; id <= 2; id++ {
				s.slot(lock, id, 2, 1, 2)
			}
		}
		disks = s.check().Disks
		require.Equal(t, []int{2, 4}, []int{disks[0].Damaged, disks[0].Behind})
		require.Equal(t, []int{0, 0}, []int{disks[1].Damaged, disks[1].Behind})
	})
}

// TestCheck_SeveralDisks_ReadsAgain: what one read shows is no finding.
func TestCheck_SeveralDisks_ReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		for i, at := range []int64{s.geo.Host(1), s.geo.Entry(1), s.geo.Slot(1, 1)} {
			s.read[i].Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, After: 1, Times: 1, Returns: disktest.Garbage}) // not in the first read, which finds the superblock
		}
		at := s.geo.Slot(1, 1) // another disk in the later passes
		s.read[1].Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, After: 2, Returns: disktest.Garbage})
		require.Empty(t, s.check().Findings)
	})
}

// TestCheck_SeveralDisks_HostRenews_NoFinding: each pass finds the record of a host that renews on a single
// disk, with another version each time.
func TestCheck_SeveralDisks_HostRenews_NoFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for sequence := uint64(2); ; sequence++ {
				s.host(1, sequence, int(sequence%3))
				select {
				case <-stop:
					return
				case <-time.After(ConfirmPause / 2):
				}
			}
		}()
		found := s.check().Findings
		close(stop)
		<-done
		require.Empty(t, found)
	})
}

// TestCheck_SeveralDisks_SlowDisk_IsCompared: a disk that answers after the others is waited for.
func TestCheck_SeveralDisks_SlowDisk_IsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		s.damage(s.geo.Host(1), 2)
		s.read[2].Inject(disktest.Fault{Op: blockdev.OpRead, Delay: setTimeout / 2})
		found := s.check().Findings
		require.Len(t, found, 1, "%+v", found)
		require.Equal(t, 3, found[0].Disk)
	})
}

// TestCheck_SeveralDisks_DiskHangs_WaitsOnce: a disk that does not answer is waited for once, not for each
// read.
func TestCheck_SeveralDisks_DiskHangs_WaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		set := s.open()
		hang := s.read[1].Inject(disktest.Fault{Op: blockdev.OpRead, Hang: true})
		began := time.Now()
		done, err := Check(t.Context(), set, Options{})
		require.NoError(t, err)
		require.Less(t, time.Since(began), 2*setTimeout)
		require.Len(t, done.Findings, 1, "%+v", done.Findings)
		require.Equal(t, []string{"disk 2", "it does not answer"}, []string{done.Findings[0].What, done.Findings[0].Problem})
		require.Equal(t, "checking", done.Disks[1].State)
		hang.Release()
		require.NoError(t, set.Close())
	})
}

func TestRewriteSuperblock_MemberDisk_KeepsItsPosition(t *testing.T) {
	s := newSeveral(t)
	for _, kind := range []lockspace.RecordKind{lockspace.KindSuperblock, lockspace.KindCopy} {
		whole := lockspacetest.Contents(t, s.disks[1])
		s.damage(map[lockspace.RecordKind]int64{lockspace.KindSuperblock: 0, lockspace.KindCopy: 512}[kind], 1)
		require.NoError(t, RewriteSuperblock(s.disks[1].Open(), kind, quiet))
		require.Equal(t, whole, lockspacetest.Contents(t, s.disks[1]))
	}
}

// TestRewriteSuperblock_BothLost_Refused: which member the disk was, and what else it lost, is not known.
func TestRewriteSuperblock_BothLost_Refused(t *testing.T) {
	s := newSeveral(t)
	s.damage(0, 1)
	s.damage(512, 1)
	before := lockspacetest.Contents(t, s.disks[1])
	err := RewriteSuperblock(s.disks[1].Open(), lockspace.KindSuperblock, quiet)
	require.True(t, errors.Is(err, lockspace.ErrNoLockspace), err)
	require.Equal(t, before, lockspacetest.Contents(t, s.disks[1]))
}
