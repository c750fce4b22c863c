package lockspace

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// lookEvery is that of package mirror.
const lookEvery = 3 * time.Second

// overwrite writes bytes to a file at an offset.
func (s *shelf) overwrite(name string, p []byte, off int64) {
	s.t.Helper()
	f, err := os.OpenFile(s.path(name), os.O_WRONLY, 0)
	require.NoError(s.t, err)
	_, err = f.WriteAt(p, off)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Close())
}

// flip flips a bit.
func (s *shelf) flip(name string, at int) {
	p, err := os.ReadFile(s.path(name))
	require.NoError(s.t, err)
	s.overwrite(name, []byte{p[at] ^ 1}, int64(at))
}

// TestDisks_ContentsChange_LookFindsIt (IDENTITY, OWN): nothing reads or writes the disks meanwhile.
func TestDisks_ContentsChange_LookFindsIt(t *testing.T) {
	const overwritten, lostWrites, valid = "overwritten", "lost writes", ""
	for name, c := range map[string]struct {
		change func(s *shelf)
		want   string
		err    string
	}{
		"zeroes":                    {func(s *shelf) { s.wipe("b") }, overwritten, "all zeroes: never formatted"},
		"other data":                {func(s *shelf) { s.overwrite("b", disktest.Random(1, 16384), 0) }, overwritten, "not such a record"},
		"copy of another member":    {func(s *shelf) { s.copy("a", "b") }, overwritten, "b is member 1, want member 2"},
		"another lockspace":         {func(s *shelf) { s.put("b", s.at(2, func(sb *layout.Superblock) { sb.UUID = layout.UUID{8} })) }, overwritten, "b is of lockspace"},
		"being formatted":           {func(s *shelf) { lockspacetest.PutSuperblocks(s.t, s.open("b"), s.at(2)); mark(s, "b") }, overwritten, "formatting was interrupted"},
		"both superblocks damaged":  {func(s *shelf) { s.flip("b", 100); s.flip("b", 4096+100) }, overwritten, "damaged record"},
		"one bit of one superblock": {func(s *shelf) { s.flip("b", 100) }, valid, ""},
		"one bit of its copy":       {func(s *shelf) { s.flip("b", 4096+100) }, valid, ""},
		"own record is older":       {func(s *shelf) { s.putOwn("b", 3, 5) }, lostWrites, "b lost writes: it has version 1.3 of the record of this host, and acknowledged 1.4"},
		"own record is zeroes":      {func(s *shelf) { s.overwrite("b", make([]byte, 4096), s.sb.Geometry.Host(2)) }, lostWrites, "b lost writes: it has version 0.0"},
		"own record is damaged":     {func(s *shelf) { s.flip("b", int(s.sb.Geometry.Host(2))+100) }, valid, ""},
		"late claim of its id":      {func(s *shelf) { s.putOwn("b", 1, 6) }, valid, ""}, // it read the same record as the own claim
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, s *shelf) {
				set := s.set("a b c", DiskOptions{})
				defer set.Close()
				set.Own(2, 5)
				require.NoError(t, set.Write(s.record(4), s.sb.Geometry.Host(2)))
				time.Sleep(lookEvery)
				require.Equal(t, []mirror.State{mirror.Up, mirror.Up, mirror.Up}, states(set))
				c.change(s)
				time.Sleep(lookEvery)
				m, remedy := MemberDisks(set)[1], "the disk lost its contents: run bakeryctl disk replace 2 NEW"
				if c.want == valid {
					require.Equal(t, []mirror.State{mirror.Up, mirror.Up, mirror.Up}, states(set))
					require.Zero(t, set.Members()[1].Failures)
					return
				}
				require.Equal(t, []mirror.State{mirror.Up, mirror.Down, mirror.Up}, states(set))
				m = MemberDisks(set)[1]
				require.Contains(t, s.text(m.Err), c.err)
				require.Equal(t, c.want == overwritten, m.Overwritten())
				require.Contains(t, m.Remedy(), remedy)
				require.NoError(t, set.Write(s.record(5), s.sb.Geometry.Host(2)))
			})
		})
	}
}

// mark makes a disk one that is being formatted.
func mark(s *shelf, name string) {
	p := blockdev.Alloc(4096)
	require.NoError(s.t, s.at(2).Encode(p, 1))
	require.NoError(s.t, s.open(name).Write(p, 0))
}

// putOwn writes the record of host 2 to a disk at position 2.
func (s *shelf) putOwn(name string, sequence, incarnation uint64) {
	p := blockdev.Alloc(4096)
	r := layout.HostRecord{ID: 2, Incarnation: incarnation, State: layout.StateLive, Generation: 1, Sequence: sequence, Name: "db2", Epoch: 3}
	require.NoError(s.t, s.sb.Space().EncodeHost(p, r))
	layout.PlaceCopy(p, 2)
	require.NoError(s.t, s.open(name).Write(p, s.sb.Geometry.Host(2)))
}

// TestDisks_LooksWhileTheRecordIsWritten_NoFalseAlarm: what a disk acknowledged during the read of a look counts from
// the next look on.
func TestDisks_LooksWhileTheRecordIsWritten_NoFalseAlarm(t *testing.T) {
	s := newShelf(t, 3)
	set := s.set("a b c", DiskOptions{})
	defer set.Close()
	set.Own(2, 5)
	var over atomic.Bool
	var looks [3]int
	var all sync.WaitGroup
	for i, name := range []string{"a", "b", "c"} {
		dev := s.open(name)
		all.Go(func() {
			for ; !over.Load() || looks[i] < 100; looks[i]++ {
				if err := set.look(i, dev); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for sequence := range uint64(1000) {
		require.NoError(t, set.Write(s.record(sequence+1), s.sb.Geometry.Host(2)))
	}
	over.Store(true)
	all.Wait()
	t.Log("looks", looks)
}

// TestDisks_ReadOnly_LooksAtNothing: a program that only reads is short-lived.
func TestDisks_ReadOnly_LooksAtNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *shelf) {
		set := s.set("a b c", DiskOptions{ReadOnly: true})
		defer set.Close()
		before := set.Members()[0].Stats.Read.Count
		time.Sleep(3 * lookEvery)
		require.Equal(t, before, set.Members()[0].Stats.Read.Count)
	})
}
