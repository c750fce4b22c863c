package lockspace

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// list makes the next list the one of the shelf: that with another disk at a position, or none.
func (s *shelf) list(position int, disk byte) {
	s.sb.Members.Epoch++
	s.sb.Members.Disks[position-1] = layout.UUID{}
	if disk != 0 {
		s.sb.Members.Disks[position-1][0] = disk
	}
}

// publish writes the list of the shelf on disks, which keep their other records.
func (s *shelf) publish(names string) {
	s.t.Helper()
	for _, name := range strings.Fields(names) {
		disk := s.open(name)
		sb, _, err := FindSuperblock(disk)
		if err != nil { // a new one
			sb = s.at(s.sb.Members.PositionOf(layout.UUID{name[0] - 'a' + 1}))
		}
		lockspacetest.PutSuperblocks(s.t, disk, s.at(sb.Position))
	}
}

const (
	up   = mirror.Up
	down = mirror.Down
)

func (s *shelf) requireEpoch(epoch uint64, set *Disks) {
	s.t.Helper()
	require.Equal(s.t, epoch, set.Superblock().Members.Epoch)
}

func (s *shelf) requireFollows(set *Disks, want ...mirror.State) {
	s.t.Helper()
	changed, err := set.Follow()
	require.NoError(s.t, err)
	require.True(s.t, changed)
	require.Equal(s.t, s.at(s.sb.Members.First()), set.Superblock())
	require.Equal(s.t, want, states(set))
	changed, err = set.Follow()
	require.NoError(s.t, err)
	require.False(s.t, changed)
}

// TestOpenDisks_OlderList_DiskCounts (IDENTITY): the disk missed changes at other positions.
func TestOpenDisks_OlderList_DiskCounts(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		s.put("b", s.at(2, func(sb *layout.Superblock) { sb.Members.Epoch, sb.Members.Disks[2] = 1, layout.UUID{9} }))
		set := s.set("b a c", DiskOptions{})
		defer set.Close()
		require.Equal(t, []mirror.State{up, up, up}, states(set))
		s.requireEpoch(3, set)
		require.Equal(t, s.at(1), set.Superblock())
	})
}

// TestOpenDisks_NewestListOnOneDisk_IsUsed: its write was interrupted, or the others missed it.
func TestOpenDisks_NewestListOnOneDisk_IsUsed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		s.list(1, 0)
		s.publish("c")
		var left []string
		set := s.set("a b c", DiskOptions{LeftOut: func(path string, reason error) { left = append(left, path+": "+s.text(reason)) }})
		defer set.Close()
		require.Equal(t, []mirror.State{down, up, up}, states(set))
		require.Equal(t, s.at(2), set.Superblock())
		require.Equal(t, []string{s.path("a") + ": a is member 1 of " + prod + ", epoch 3, but the disk is not a member in epoch 4; remove it from --device or BAKERYD_DEVICE"}, left)
		m := MemberDisks(set)[0]
		require.Equal(t, "member 1", m.Name)
		require.ErrorIs(t, m.Err, ErrVacant)
		require.ErrorIs(t, m.Err, ErrVacant)
		require.Equal(t, "if no replacement is running, run bakeryctl disk replace 1 NEW", m.Remedy())
		require.Zero(t, m.UUID)
		require.NoError(t, set.Write(s.record(1), s.sb.Geometry.Host(2)))
		snapshot, err := Inspect(set)
		require.NoError(t, err)
		require.Equal(t, s.at(2), snapshot.Superblock)
		require.Empty(t, snapshot.Damaged)
	})
}

// TestOpenDisks_InterruptedBetweenSuperblockAndCopy_NewerIsUsed: the copy has the next list.
func TestOpenDisks_InterruptedBetweenSuperblockAndCopy_NewerIsUsed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		s.list(1, 0)
		p := blockdev.Alloc(4096)
		require.NoError(t, s.at(2).Encode(p, 1))
		require.NoError(t, s.open("b").Write(p, 4096))
		set := s.set("a b c", DiskOptions{})
		defer set.Close()
		require.Equal(t, []mirror.State{down, up, up}, states(set))
		s.requireEpoch(4, set)
	})
}

// TestOpenDisks_ExtraPaths_LeadToMissingMembers: one is blank, one leads to a disk that was replaced.
func TestOpenDisks_ExtraPaths_LeadToMissingMembers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		s.put("old", s.at(3, func(sb *layout.Superblock) { sb.Members.Epoch, sb.Members.Disks[2] = 2, layout.UUID{9} }))
		s.wipe("d")
		s.remove("c")
		set := s.set("a old b d c", DiskOptions{})
		defer set.Close()
		require.Equal(t, []mirror.State{up, up, down}, states(set))
		m := MemberDisks(set)[2]
		require.Equal(t, "old or d or c", strings.ReplaceAll(m.Name, s.dir+"/", ""))
		require.ErrorContains(t, m.Err, "old is disk 09000000-0000-0000-0000-000000000000, which is not member 3 in epoch 3")
		require.ErrorIs(t, m.Err, layout.ErrBlank)
		require.ErrorIs(t, m.Err, unix.ENOENT)
		s.put("d", s.at(3))
		time.Sleep(DefaultRetry)
		require.Equal(t, []mirror.State{up, up, up}, states(set))
	})
}

// TestFollow_DiskIsReplaced_OnlyTheNewOneCounts vacates a position and fills it, with a host that sees both.
func TestFollow_DiskIsReplaced_OnlyTheNewOneCounts(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		s.wipe("d")
		set := s.set("a b c d", DiskOptions{})
		defer set.Close()
		require.NoError(t, set.Write(s.record(1), s.sb.Geometry.Host(2)))
		s.list(3, 0)
		s.publish("a b")
		s.requireFollows(set, up, up, down)
		require.ErrorIs(t, set.Members()[2].Err, ErrVacant)
		require.NoError(t, set.Write(s.record(2), s.sb.Geometry.Host(2)))
		require.Equal(t, uint64(1), s.sequence(s.open("c")))

		s.copy("a", "d") // records and all, as one that replaces a disk does
		s.list(3, 4)
		s.put("d", s.at(3))
		s.publish("a b")
		s.requireFollows(set, up, up, up)
		require.Equal(t, s.path("d"), set.Members()[2].Name)
		require.NoError(t, set.Write(s.record(3), s.sb.Geometry.Host(2)))
		require.NoError(t, set.Close())
		require.Equal(t, uint64(3), s.sequence(s.open("d")))
		require.Equal(t, uint64(1), s.sequence(s.open("c")))
	})
}

// TestFollow_NoPathLeadsToTheNewDisk_OthersAreUsed: the list of paths was not changed on this host.
func TestFollow_NoPathLeadsToTheNewDisk_OthersAreUsed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		set := s.set("a b c", DiskOptions{})
		defer set.Close()
		s.list(3, 4)
		s.publish("a b")
		s.requireFollows(set, up, up, down)
		require.ErrorContains(t, set.Members()[2].Err, "c is disk 03000000-0000-0000-0000-000000000000, which is not member 3 in epoch 4")
		require.NoError(t, set.Write(s.record(1), s.sb.Geometry.Host(2)))
		s.remove("c") // the new disk gets the path of the old one
		s.put("c", s.at(3))
		time.Sleep(DefaultRetry)
		require.Equal(t, []mirror.State{up, up, up}, states(set))
	})
}

// TestFollow_ReplacedDiskHasAnotherUse_IsIgnored: its path is still in the list.
func TestFollow_ReplacedDiskHasAnotherUse_IsIgnored(t *testing.T) {
	for name, use := range map[string]func(sb *layout.Superblock){
		"in another lockspace": func(sb *layout.Superblock) { sb.UUID = layout.UUID{8} },
		"alone":                func(sb *layout.Superblock) { sb.UUID, sb.Members, sb.Position = layout.UUID{8}, layout.Members{}, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, s *shelf) {
				set := s.set("a b c", DiskOptions{})
				defer set.Close()
				s.list(3, 0)
				s.publish("a b")
				s.requireFollows(set, up, up, down)
				s.put("c", s.at(3, func(sb *layout.Superblock) { sb.Members.Disks[2] = layout.UUID{3} }, use))
				s.list(3, 4)
				s.publish("a")
				s.requireFollows(set, up, up, down)
			})
		})
	}
}

// TestFollow_HalfWrittenList_IsUsed: one disk has it.
func TestFollow_HalfWrittenList_IsUsed(t *testing.T) {
	bubble(t, 5, func(t *testing.T, s *shelf) {
		set := s.set("a b c d e", DiskOptions{})
		defer set.Close()
		s.list(2, 0)
		s.publish("e")
		s.requireFollows(set, up, down, up, up, up)
	})
}

// TestFollow_TooFewMembers_ChangesNothing: the host keeps the majority that it has.
func TestFollow_TooFewMembers_ChangesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		set := s.set("a b c", DiskOptions{})
		defer set.Close()
		s.list(3, 0)
		s.publish("a")
		away := s.path("away")
		require.NoError(t, os.Rename(s.path("b"), away)) // it is still open
		changed, err := set.Follow()
		require.ErrorIs(t, err, ErrDisks)
		require.ErrorContains(t, err, "needs 2 of 3, found 1")
		require.False(t, changed)
		s.requireEpoch(3, set)
		require.Equal(t, []mirror.State{up, up, up}, states(set))
		require.NoError(t, os.Rename(away, s.path("b")))
		s.requireFollows(set, up, up, down)
	})
}

// TestFollow_PathHangs_ReturnsInTime: the other paths suffice.
func TestFollow_PathHangs_ReturnsInTime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		hangs, never := new(atomic.Bool), make(chan struct{})
		set := s.set("a b c", DiskOptions{Open: func(path string, readOnly bool) (Disk, error) {
			if hangs.Load() && path == s.path("c") {
				<-never
			}
			return openPath(path, readOnly)
		}})
		defer set.Close()
		defer close(never)
		s.list(3, 0)
		s.publish("b")
		hangs.Store(true)
		began := time.Now()
		s.requireFollows(set, up, up, down)
		require.Equal(t, 2*DefaultTimeout/10, time.Since(began)) // it was called twice
	})
}

// TestMemberDisks_ListIsTakenIntoUse_StateIsThatOfTheDisk: one disk is exchanged, and the list is not in use yet.
func TestMemberDisks_ListIsTakenIntoUse_StateIsThatOfTheDisk(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		set := s.set("a b c", DiskOptions{})
		defer set.Close()
		require.Equal(t, s.sb.Members.Disks[2], MemberDisks(set)[2].UUID)
		set.Replace(2, mirror.Member{Name: "none", Open: func() (blockdev.Device, error) { return nil, ErrVacant }})
		states(set)
		require.Equal(t, down, MemberDisks(set)[2].State)
		require.Zero(t, MemberDisks(set)[2].UUID)
	})
}

// TestCheck_NewerList_IsFollowed: a check of a member that was lost for a moment finds it.
func TestCheck_NewerList_IsFollowed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		changed := make(chan struct{}, 100)
		set := s.set("a b c", DiskOptions{Changed: func() { changed <- struct{}{} }})
		defer set.Close()
		s.list(3, 0)
		s.publish("a")
		set.Recheck(0, errors.New("test"))
		require.Equal(t, []mirror.State{up, up, down}, states(set))
		s.requireEpoch(4, set)
		require.NotEmpty(t, changed)
		set.Recheck(0, errors.New("test"))
		require.Equal(t, []mirror.State{up, up, down}, states(set))
	})
}

// TestUse_NewDisk_IsOpenedAtItsPath: the host that replaces a disk knows both, and was not given its path.
func TestUse_NewDisk_IsOpenedAtItsPath(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		set := s.set("a b c", DiskOptions{})
		defer set.Close()
		s.list(2, 0)
		set.Use(s.sb.Members, "")
		require.Equal(t, []mirror.State{up, down, up}, states(set))
		require.ErrorIs(t, set.Members()[1].Err, ErrVacant)
		s.list(2, 4)
		s.put("d", s.at(2))
		set.Use(s.sb.Members, s.path("d"))
		require.Equal(t, []mirror.State{up, up, up}, states(set))
		require.Equal(t, s.path("d"), set.Members()[1].Name)
		require.Equal(t, s.at(1), set.Superblock())
		old := s.sb.Members
		old.Epoch--
		old.Disks[1] = layout.UUID{2}
		set.Use(old, s.path("b"))
		require.Equal(t, s.at(1), set.Superblock()) // an older list is not used
		require.Equal(t, []mirror.State{up, up, up}, states(set))
	})
}
