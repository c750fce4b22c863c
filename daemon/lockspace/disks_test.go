package lockspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// shelf is a directory of files, the member disks of a lockspace among them.
type shelf struct {
	t   *testing.T
	dir string
	sb  layout.Superblock
}

// newShelf has the member disks a, b, c, ... of a lockspace.
func newShelf(t *testing.T, members int) *shelf {
	s := &shelf{t: t, dir: lockspacetest.Dir(t), sb: layout.Superblock{UUID: layout.UUID{7}, Name: "prod", Lease: 10 * time.Second,
		Geometry: layout.Geometry{Stride: 4096, Hosts: 3, Locks: 2}, Members: layout.Members{Epoch: 3, Positions: members}}}
	for i := range members {
		s.sb.Members.Disks[i] = layout.UUID{byte(i + 1)}
	}
	for i := range members {
		s.put(string(rune('a'+i)), s.at(i+1))
	}
	return s
}

// at returns the superblock of the member at a position, with changes.
func (s *shelf) at(position int, changes ...func(*layout.Superblock)) layout.Superblock {
	sb := s.sb
	sb.Position = position
	for _, change := range changes {
		change(&sb)
	}
	return sb
}

// path returns the path of a file.
func (s *shelf) path(name string) string { return filepath.Join(s.dir, name) }

// paths returns the paths of files.
func (s *shelf) paths(names string) (paths []string) {
	for _, name := range strings.Fields(names) {
		paths = append(paths, s.path(name))
	}
	return paths
}

// put makes a file the disk that has a superblock. It writes to the file that is there.
func (s *shelf) put(name string, sb layout.Superblock) {
	s.wipe(name)
	lockspacetest.PutSuperblocks(s.t, s.open(name), sb)
}

// wipe makes a file a blank disk.
func (s *shelf) wipe(name string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), make([]byte, s.sb.Geometry.Size()), 0o600))
}

// open opens a file.
func (s *shelf) open(name string) *blockdev.Disk {
	s.t.Helper()
	dev, err := blockdev.Open(s.path(name), blockdev.Options{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = dev.Close() })
	return dev
}

func (s *shelf) remove(name string) {
	s.t.Helper()
	require.NoError(s.t, os.Remove(s.path(name)))
}

func (s *shelf) copy(from, to string) {
	s.t.Helper()
	p, err := os.ReadFile(s.path(from))
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(s.path(to), p, 0o600))
}

// set opens the lockspace at paths, until the test ends.
func (s *shelf) set(names string, o DiskOptions) *Disks {
	s.t.Helper()
	dev, sb, _, err := OpenDisks(s.paths(names), o)
	require.NoError(s.t, err)
	require.True(s.t, SameSuperblock(sb, s.sb))
	return dev.(*Disks)
}

// text returns an error without the directory, and without the numbers of a file.
func (s *shelf) text(err error) string {
	plain := strings.ReplaceAll(err.Error(), s.dir+"/", "")
	return regexp.MustCompile(`file \d+:\d+ inode \d+`).ReplaceAllString(plain, "FILE")
}

// bubble runs a test with a clock of its own.
func bubble(t *testing.T, members int, test func(t *testing.T, s *shelf)) {
	s := newShelf(t, members)
	synctest.Test(t, func(t *testing.T) { s.t = t; test(t, s) })
}

// states returns the states of the members, once all of their checks ended.
func states(set *Disks) (all []mirror.State) {
	synctest.Wait()
	for _, m := range set.Members() {
		all = append(all, m.State)
	}
	return all
}

// record returns a host record as it is written to a set.
func (s *shelf) record(sequence uint64) []byte {
	p := blockdev.Alloc(s.sb.Geometry.Stride)
	r := layout.HostRecord{ID: 2, Incarnation: 5, State: layout.StateLive, Generation: 1, Sequence: sequence, Name: "db2", Epoch: 3}
	require.NoError(s.t, s.sb.Space().EncodeHost(p, r))
	return p
}

func (s *shelf) sequence(dev blockdev.Device) uint64 {
	s.t.Helper()
	p := blockdev.Alloc(s.sb.Geometry.Stride)
	require.NoError(s.t, dev.Read(p, s.sb.Geometry.Host(2)))
	r, err := s.sb.Space().DecodeHost(p, 2)
	require.NoError(s.t, err)
	return r.Sequence
}

const prod = `lockspace "prod" (07000000-0000-0000-0000-000000000000)`

const test = `lockspace "test" (08000000-0000-0000-0000-000000000000)`

func TestOpenDisks_WrongDisks_Refused(t *testing.T) {
	epoch := func(n uint64) func(*layout.Superblock) {
		return func(sb *layout.Superblock) { sb.Members.Epoch = n }
	}
	disk := func(position int, id byte) func(*layout.Superblock) {
		return func(sb *layout.Superblock) { sb.Members.Disks[position-1] = layout.UUID{id} }
	}
	other := func(sb *layout.Superblock) { // of another lockspace
		sb.UUID, sb.Name = layout.UUID{8}, "test"
		for i := range sb.Members.Disks {
			sb.Members.Disks[i][1] = sb.Members.Disks[i][0]
		}
	}
	alone := func(sb *layout.Superblock) { sb.Members, sb.Position = layout.Members{}, 0 }
	never := func(*shelf) {}
	three := "wrong disks: " + prod + " has 3 member disks; give at least 2 of them, each with --device or as an argument; "
	for _, c := range []struct {
		name    string
		members int
		prepare func(s *shelf)
		paths   string
		want    string
	}{
		{"no path", 3, never, "", "wrong disks: no lockspace was found"},
		{"one of three", 3, never, "b", three + "b is member 2"},
		{"two of five", 5, never, "b e", "wrong disks: " + prod + " has 5 member disks; give at least 3 of them, each with --device or as an argument; " +
			"b is member 2 of " + prod + ", epoch 3; e is member 5 of " + prod + ", epoch 3"},
		{"same path", 3, never, "a b a", "wrong disks: a and a lead to the same disk, FILE; give each disk once"},
		{"two paths to one disk", 3, func(s *shelf) { require.NoError(s.t, os.Symlink("b", s.path("link"))) }, "a b link",
			"wrong disks: b and link lead to the same disk, FILE; give each disk once"},
		{"two paths to a blank disk", 3, func(s *shelf) { s.wipe("c"); require.NoError(s.t, os.Symlink("c", s.path("link"))) }, "a b c link",
			"wrong disks: c and link lead to the same disk, FILE; give each disk once"},
		{"copy of a member", 3, func(s *shelf) { s.copy("b", "clone") }, "a clone b",
			"wrong disks: clone and b both are member 2 of " + prod + ": one is a copy of the other, or both are paths to it; give the disk once"},
		{"old copy of a member", 3, func(s *shelf) { s.put("snapshot", s.at(2, epoch(2))) }, "a b c snapshot",
			"wrong disks: b and snapshot both are member 2 of " + prod + ": one is a copy of the other, or both are paths to it; give the disk once"},
		{"lockspace on one disk, and another", 3, func(s *shelf) { s.put("one", s.at(0, other, alone)) }, "a b one",
			"wrong disks: one has " + test + ", which is on this disk alone; give no other disk, or leave out this one"},
		{"lockspace on one disk, and a blank one", 3, func(s *shelf) { s.put("one", s.at(0, other, alone)); s.wipe("c") }, "one c",
			"wrong disks: one has " + test + ", which is on this disk alone; give no other disk, or leave out this one"},
		{"member of another lockspace", 3, func(s *shelf) { s.put("x", s.at(3, other)) }, "x a b",
			"wrong disks: a is member 1 of " + prod + ", epoch 3, but x is member 3 of " + test + ", epoch 3; give the disks of one lockspace"},
		{"two lockspaces, no majority", 3, func(s *shelf) { s.put("x", s.at(3, other)); s.wipe("c") }, "a x c",
			"wrong disks: no lockspace has a majority of its member disks among them; give the disks of one lockspace, each with --device or as an argument; " +
				"a is member 1 of " + prod + ", epoch 3; x is member 3 of " + test + ", epoch 3; " +
				"no lockspace on c: superblock at byte 0: all zeroes: never formatted"},
		{"replaced members", 3, func(s *shelf) { // one after the other
			s.put("new", s.at(1, epoch(5), disk(1, 7), disk(2, 8)))
		}, "a b new", three + "a is not a member in epoch 5; b is not a member in epoch 5; " +
			"a is member 1 of " + prod + ", epoch 3; b is member 2 of " + prod + ", epoch 3; new is member 1 of " + prod + ", epoch 5"},
		{"one that was replaced, and one that stayed", 3, func(s *shelf) { s.put("b", s.at(2, epoch(4), disk(1, 0))) }, "a b",
			three + "a is not a member in epoch 4; a is member 1 of " + prod + ", epoch 3; b is member 2 of " + prod + ", epoch 4"},
		{"another superblock", 3, func(s *shelf) { s.put("b", s.at(2, func(sb *layout.Superblock) { sb.Lease = 20 * time.Second })) }, "a b",
			three + "a is member 1 of " + prod + ", epoch 3; b is member 2 of " + prod + ", epoch 3"},
		{"blank disks", 3, func(s *shelf) { s.wipe("a"); s.wipe("b") }, "a b", "wrong disks: no lockspace was found; " +
			"no lockspace on a: superblock at byte 0: all zeroes: never formatted; no lockspace on b: superblock at byte 0: all zeroes: never formatted"},
		{"missing, damaged, too small", 5, func(s *shelf) {
			lockspacetest.Damage(s.t, s.open("b"), 0)
			lockspacetest.Damage(s.t, s.open("b"), 4096)
			require.NoError(s.t, os.Truncate(s.path("c"), 8192))
		}, "a b c none gone", "no majority of the member disks: " + prod + " needs 3 of 5, found 1; " +
			"a is member 1 of " + prod + ", epoch 3; no lockspace on b: superblock at byte 0: checksum NUMBER, want NUMBER: damaged record; " +
			"lockspace on c: device is too small: it needs 65536 bytes (64.0 KiB), the device has 8192 bytes (8.0 KiB); " +
			"open none: no such file or directory; open gone: no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShelf(t, c.members)
			c.prepare(s)
			_, _, _, err := OpenDisks(s.paths(c.paths), DiskOptions{})
			require.ErrorIs(t, err, ErrDisks)
			require.Equal(t, c.want, regexp.MustCompile("0x[0-9a-f]+").ReplaceAllString(s.text(err), "NUMBER"))
		})
	}
}

func TestOpenDisks_Majority_ReadsAndWrites(t *testing.T) {
	s := newShelf(t, 3)
	dev, sb, copyUsed, err := OpenDisks(s.paths("c a b"), DiskOptions{})
	require.NoError(t, err)
	require.Zero(t, copyUsed)
	require.Equal(t, s.at(1), sb)

	require.NoError(t, dev.Write(s.record(9), s.sb.Geometry.Host(2)))
	require.Equal(t, uint64(9), s.sequence(dev))
	var found []string
	for _, m := range MemberDisks(dev) {
		require.NoError(t, m.Err)
		found = append(found, fmt.Sprintf("%s %v %d %v", filepath.Base(m.Name), m.State, m.Position, m.UUID[0]))
	}
	require.Equal(t, []string{"a up 1 1", "b up 2 2", "c up 3 3"}, found)
	snapshot, err := Inspect(disktest.NewFaulty(dev, disktest.FaultyOptions{})) // a device over the set
	require.NoError(t, err)
	require.Equal(t, s.at(1), snapshot.Superblock)
	require.Empty(t, snapshot.Damaged)
	require.Equal(t, uint64(9), snapshot.Hosts[0].Sequence)
	require.NoError(t, dev.Close())
	for name, at := range map[string]int{"a": 1, "b": 2, "c": 3} {
		p := blockdev.Alloc(4096)
		require.NoError(t, s.open(name).Read(p, s.sb.Geometry.Host(2)))
		v, err := s.sb.Space().CopyVersion(p, s.sb.Geometry.Host(2), at)
		require.NoError(t, err, name)
		require.Equal(t, layout.CopyVersion{Epoch: 1, Counter: 9}, v)
	}
}

// TestOpenDisks_OneDisk_NoSet: a lockspace on one disk is opened as its disk.
func TestOpenDisks_OneDisk_NoSet(t *testing.T) {
	s := newShelf(t, 3)
	want := s.at(0, func(sb *layout.Superblock) { sb.Members = layout.Members{} })
	s.put("one", want)
	lockspacetest.Damage(t, s.open("one"), 0)
	dev, sb, copyUsed, err := OpenDisks(s.paths("one"), DiskOptions{ReadOnly: true})
	require.NoError(t, err)
	defer dev.Close()
	require.IsType(t, &blockdev.Disk{}, dev)
	require.True(t, dev.Info().ReadOnly)
	require.Equal(t, uint64(1), dev.Stats().Read.Count)
	require.Equal(t, want, sb)
	require.Equal(t, 1, copyUsed)
	require.Nil(t, MemberDisks(dev))
}

func TestOpenDisks_DamagedSuperblock_CopyUsed(t *testing.T) {
	s := newShelf(t, 3)
	lockspacetest.Damage(t, s.open("b"), 0)
	dev, _, copyUsed, err := OpenDisks(s.paths("a b c"), DiskOptions{})
	require.NoError(t, err)
	defer dev.Close()
	require.Equal(t, 1, copyUsed)
	for _, m := range dev.(*Disks).Members() {
		require.Equal(t, mirror.Up, m.State)
	}
	_, copyUsed, err = FindLockspace(dev)
	require.NoError(t, err)
	require.Zero(t, copyUsed) // two members have the one at byte 0
}

func TestOpenDisks_ReadOnly(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		set := s.set("a b c", DiskOptions{ReadOnly: true, Check: func(_ int, dev blockdev.Device) error {
			require.True(t, dev.Info().ReadOnly)
			return nil
		}})
		defer set.Close()
		require.True(t, set.Info().ReadOnly)
		require.ErrorIs(t, set.Write(s.record(1), s.sb.Geometry.Host(2)), blockdev.ErrReadOnly)
		_, _, err := FindLockspace(set)
		require.NoError(t, err)
	})
}

// TestOpenDisks_MissingMember_JoinsLater has members that are found later at the paths of one another.
func TestOpenDisks_MissingMember_JoinsLater(t *testing.T) {
	bubble(t, 5, func(t *testing.T, s *shelf) {
		s.remove("b")
		s.wipe("d")
		set := s.set("a b c d e", DiskOptions{})
		defer set.Close()
		require.Equal(t, []mirror.State{mirror.Up, mirror.Down, mirror.Up, mirror.Down, mirror.Up}, states(set))
		m := MemberDisks(set)
		require.Equal(t, "b or d", strings.ReplaceAll(m[1].Name, s.dir+"/", ""))
		require.ErrorIs(t, m[1].Err, unix.ENOENT)
		require.ErrorIs(t, m[1].Err, layout.ErrBlank)
		require.NoError(t, set.Write(s.record(1), s.sb.Geometry.Host(2)))

		s.put("b", s.at(4))
		time.Sleep(DefaultRetry)
		require.Equal(t, []mirror.State{mirror.Up, mirror.Down, mirror.Up, mirror.Up, mirror.Up}, states(set))
		require.ErrorContains(t, set.Members()[1].Err, "b is member 4, want member 2")
		s.put("d", s.at(2))
		time.Sleep(DefaultRetry)
		require.Equal(t, []mirror.State{mirror.Up, mirror.Up, mirror.Up, mirror.Up, mirror.Up}, states(set))
		require.NoError(t, set.Write(s.record(2), s.sb.Geometry.Host(2)))
		require.NoError(t, set.Close())
		require.Equal(t, uint64(2), s.sequence(s.open("b")))
		require.Equal(t, uint64(2), s.sequence(s.open("d")))
	})
}

func TestOpenDisks_FewerPaths_MembersStayDown(t *testing.T) {
	bubble(t, 5, func(t *testing.T, s *shelf) {
		set := s.set("e b c", DiskOptions{})
		defer set.Close()
		require.Equal(t, []mirror.State{mirror.Down, mirror.Up, mirror.Up, mirror.Down, mirror.Up}, states(set))
		m := set.Members()[0]
		require.Equal(t, "member 1", m.Name)
		require.ErrorIs(t, m.Err, ErrNoPath)
		require.NoError(t, set.Write(s.record(1), s.sb.Geometry.Host(2)))
		snapshot, err := Inspect(set)
		require.NoError(t, err)
		require.Equal(t, uint64(1), snapshot.Hosts[0].Sequence)
		require.Equal(t, s.at(1), snapshot.Superblock)
		require.Empty(t, snapshot.Damaged)
	})
}

// TestOpenDisks_DiskChanges_NeverVotes changes a disk in use, then has its path lead to another one.
func TestOpenDisks_DiskChanges_NeverVotes(t *testing.T) {
	other := func(sb *layout.Superblock) { sb.UUID = layout.UUID{8} }
	for _, c := range []struct {
		name   string
		change func(s *shelf)
		want   string
	}{
		{"wiped", func(s *shelf) { s.wipe("b") }, "all zeroes"},
		{"clone of another member", func(s *shelf) { s.copy("a", "b") }, "b is member 1, want member 2"},
		{"clone at the copy alone", func(s *shelf) {
			p := blockdev.Alloc(4096)
			require.NoError(s.t, s.at(1).Encode(p, 1))
			require.NoError(s.t, s.open("b").Write(p, 4096))
		}, "b is member 1, want member 2"},
		{"of another lockspace", func(s *shelf) { s.put("b", s.at(2, other)) }, "b is of lockspace"},
		{"another lease", func(s *shelf) { s.put("b", s.at(2, func(sb *layout.Superblock) { sb.Lease = time.Minute })) },
			"b has another superblock than the other member disks"},
		{"another disk uuid", func(s *shelf) {
			s.put("b", s.at(2, func(sb *layout.Superblock) { sb.Members.Disks[1] = layout.UUID{9} }))
		}, "b is disk 09000000-0000-0000-0000-000000000000, which is not member 2 in epoch 3"},
		{"being formatted", func(s *shelf) {
			p := blockdev.Alloc(4096)
			require.NoError(s.t, s.at(2).Encode(p, 1))
			require.NoError(s.t, s.open("b").Write(p, 0))
		}, "formatting was interrupted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, s *shelf) {
				set := s.set("a b c", DiskOptions{})
				defer set.Close()
				c.change(s)
				set.Recheck(1, errors.New("test"))
				require.Equal(t, []mirror.State{mirror.Up, mirror.Down, mirror.Up}, states(set))
				require.ErrorContains(t, set.Members()[1].Err, c.want)
				require.NoError(t, set.Write(s.record(4), s.sb.Geometry.Host(2)))

				s.remove("b")
				s.put("b", s.at(3, other))
				time.Sleep(DefaultRetry)
				require.Equal(t, []mirror.State{mirror.Up, mirror.Down, mirror.Up}, states(set))
				require.ErrorContains(t, set.Members()[1].Err, "b is of lockspace")
				s.remove("b")
				s.put("b", s.at(2))
				time.Sleep(DefaultRetry)
				require.Equal(t, []mirror.State{mirror.Up, mirror.Up, mirror.Up}, states(set))
			})
		})
	}
}

// TestFindLockspace_Set_NewestEpoch: a change of the members is seen through a set of the old ones.
func TestFindLockspace_Set_NewestEpoch(t *testing.T) {
	s := newShelf(t, 3)
	set := s.set("a b c", DiskOptions{})
	defer set.Close()
	for name, at := range map[string]int{"b": 2, "c": 3} {
		lockspacetest.PutSuperblocks(t, s.open(name), s.at(at, func(sb *layout.Superblock) { sb.Members.Epoch++ }))
	}
	sb, _, err := FindLockspace(set)
	require.NoError(t, err)
	require.Equal(t, s.at(1, func(sb *layout.Superblock) { sb.Members.Epoch = 4 }), sb)
}

func TestFindLockspace_MemberDisk_Refused(t *testing.T) {
	s := newShelf(t, 3)
	_, err := Inspect(s.open("c"))
	require.ErrorIs(t, err, ErrDisks)
	require.Equal(t, "wrong disks: "+prod+" has 3 member disks; give at least 2 of them, each with --device or as an argument; c is member 3", s.text(err))
	sb, _, err := FindSuperblock(s.open("c"))
	require.NoError(t, err)
	require.Equal(t, s.at(3), sb)
}

// TestOpenDisks_LockedMember_Waits: a member is used once this process has its lock, and its check passes.
func TestOpenDisks_LockedMember_Waits(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		earlier := s.open("c")
		require.NoError(t, earlier.Lock(s.sb.Geometry.Host(2), 4096))
		lost := errors.New("record is lost")
		var bad int
		o := DiskOptions{
			Lock: func(position int, disk Disk, _ layout.Superblock) error {
				require.Equal(t, s.path(string(rune('a'+position))), disk.Info().Path)
				return disk.Lock(s.sb.Geometry.Host(2), 4096)
			},
			Check: func(position int, dev blockdev.Device) error {
				require.Equal(t, s.path(string(rune('a'+position))), dev.Info().Path)
				if position == bad {
					return lost
				}
				return nil
			},
		}
		_, _, _, err := OpenDisks(s.paths("a b c"), o)
		require.ErrorIs(t, err, mirror.ErrNoMajority)
		require.ErrorIs(t, err, blockdev.ErrBusy)
		require.ErrorIs(t, err, lost)

		bad = -1
		set := s.set("a b c", o)
		defer set.Close()
		require.Equal(t, []mirror.State{mirror.Up, mirror.Up, mirror.Down}, states(set))
		require.NoError(t, earlier.Close())
		time.Sleep(DefaultRetry)
		require.Equal(t, []mirror.State{mirror.Up, mirror.Up, mirror.Up}, states(set))
		require.ErrorIs(t, s.open("c").Lock(s.sb.Geometry.Host(2), 4096), blockdev.ErrBusy)
	})
}

// TestOpenDisks_PathHangs_IsReadOnce: each read occupies a thread until the disk answers.
func TestOpenDisks_PathHangs_IsReadOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		opened, answers := 0, make(chan struct{})
		set := s.set("a b c", DiskOptions{Open: func(path string, readOnly bool) (Disk, error) {
			if path == s.path("c") {
				opened++
				<-answers
			}
			return openPath(path, readOnly)
		}})
		time.Sleep(time.Hour)
		require.Equal(t, []mirror.State{mirror.Up, mirror.Up, mirror.Checking}, states(set))
		require.Equal(t, 1, opened)
		require.NoError(t, set.Close(), "it waits for that read")
		close(answers)
	})
}

// TestSurvey_PathHangs_GivenUp: the disks that answer are used, soon if they are a majority.
func TestSurvey_PathHangs_GivenUp(t *testing.T) {
	for hung, most := range map[string]time.Duration{"b": DefaultTimeout / 10, "b a": DefaultTimeout} {
		bubble(t, 3, func(t *testing.T, s *shelf) {
			hangs := make(chan struct{})
			defer close(hangs)
			began := time.Now()
			all := survey(new(singleflight.Group), s.paths("c b a"), DefaultTimeout, func(path string) finding {
				if slices.Contains(s.paths(hung), path) {
					<-hangs
					return finding{}
				}
				return DiskOptions{Open: openPath}.readPath(path)
			})
			require.Equal(t, most, time.Since(began))
			require.EqualError(t, all[1].err, s.path("b")+": no answer within 2s")
			if sb, err := choose(all); hung == "b" {
				require.NoError(t, err)
				require.Equal(t, s.at(1), sb)
			} else {
				require.ErrorIs(t, err, ErrNoAnswer)
				require.ErrorIs(t, err, ErrDisks)
			}
		})
	}
}
