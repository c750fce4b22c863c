package handover

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

var noteSpace = layout.Space{UUID: fileUUID, Geometry: layout.Geometry{Stride: 512, Hosts: 8, Locks: 5}, Several: true}

// noteOf returns a slot as on disk.
func noteOf(t testing.TB, lock int, sequence uint64, change ...func(*layout.Slot)) []byte {
	t.Helper()
	s := layout.Slot{Lock: lock, Host: fileHost, Generation: 3, Sequence: sequence, Incarnation: aTerm().Incarnation, Creation: 1,
		Ticket: layout.MakeTicket(100+sequence, fileHost), Phase: layout.Waiting}
	for _, f := range change {
		f(&s)
	}
	sector := make([]byte, layout.RecordSize)
	require.NoError(t, noteSpace.EncodeSlot(sector, s))
	return sector
}

// newNotes returns a handover file with notes.
func newNotes(t testing.TB) (*File, *Notes) {
	t.Helper()
	j, err := Create(t.TempDir(), fileUUID, fileHost)
	require.NoError(t, err)
	t.Cleanup(j.Close)
	require.NoError(t, j.CreateNotes(noteSpace.Geometry.Locks))
	require.NoError(t, setTerm(j, aTerm()))
	return j, j.SlotNotes()
}

// resumeIn resumes with notes, as the next process does.
func resumeIn(dir string) (*File, error) {
	j, _, _, err := Resume(dir, fileUUID, fileHost, clock.Boottime.Now())
	if err != nil {
		return nil, err
	}
	if err := j.ResumeNotes(noteSpace); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// left returns the notes that the next process finds.
func left(t testing.TB, j *File) map[int][]byte {
	t.Helper()
	next, err := resumeIn(filepath.Dir(j.Path))
	require.NoError(t, err)
	defer next.Close()
	return next.SlotNotes().Left()
}

func TestNotes_NextProcess_FindsWritesThatHaveNotReturned(t *testing.T) {
	j, n := newNotes(t)
	require.Empty(t, n.Left())
	require.Empty(t, left(t, j))
	for lock := range noteSpace.Geometry.Locks + 1 {
		require.NoError(t, n.Put(lock, noteOf(t, lock, 7)))
	}
	n.Remove(1)
	require.NoError(t, n.Put(2, noteOf(t, 2, 8)), "write 7 failed")
	for sequence := range uint64(3) {
		require.NoError(t, n.Put(3, noteOf(t, 3, 8+sequence)))
	}
	n.Remove(3)
	require.NoError(t, n.Put(4, noteOf(t, 4, 8)))
	n.Remove(4)
	require.NoError(t, n.Put(4, noteOf(t, 4, 9)))
	want := map[int][]byte{0: noteOf(t, 0, 7), 2: noteOf(t, 2, 8), 4: noteOf(t, 4, 9), 5: noteOf(t, 5, 7)}
	require.Equal(t, want, left(t, j))
	info, err := os.Stat(j.notesPath())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	next, err := resumeIn(filepath.Dir(j.Path))
	require.NoError(t, err)
	next.SlotNotes().Remove(2)
	require.NoError(t, next.SlotNotes().Put(0, noteOf(t, 0, 8)))
	next.Close()
	require.Error(t, next.SlotNotes().Put(0, noteOf(t, 0, 9)), "the file was left to the next process")
	delete(want, 2)
	want[0] = noteOf(t, 0, 8)
	require.Equal(t, want, left(t, j))

	require.NoError(t, j.Discard())
	require.NoFileExists(t, j.notesPath())
	var none *Notes
	require.NoError(t, none.Put(0, nil))
	none.Remove(0)
	require.Nil(t, none.Left())
}

// TestNotes_CutAnywhere_LeaveWholeNotes: a writer that is killed in the middle of a store or a removal,
// after any number of its stores.
func TestNotes_CutAnywhere_LeaveWholeNotes(t *testing.T) {
	j, n := newNotes(t)
	places := j.notes[2*notesOf:][:notesOf]
	at := func(i int) []byte { return places[i*layout.RecordSize:][:layout.RecordSize] }
	older, later := noteOf(t, 2, 7), noteOf(t, 2, 8)
	for i := range 2 {
		clear(places)
		torn := append(make([]byte, 8), later[8:300]...) // the first bytes are stored last
		copy(at(i), torn)
		require.Empty(t, left(t, j), "its write had not begun")
		copy(at(1-i), older)
		require.Equal(t, map[int][]byte{2: older}, left(t, j), "that write may have")
		copy(at(i), later)
		require.Equal(t, map[int][]byte{2: later}, left(t, j), "both are whole")
		require.Equal(t, make([]byte, 8), at(1 - i)[:8], "the other one never counts again")
		require.NoError(t, n.Put(2, noteOf(t, 2, 9)))
		require.Equal(t, make([]byte, 8), at(i)[:8], "removed before the write begins")
		require.Equal(t, map[int][]byte{2: noteOf(t, 2, 9)}, left(t, j))
		n.Remove(2)
		require.Empty(t, left(t, j))
		require.Equal(t, make([]byte, 8), at(0)[:8])
		require.Equal(t, make([]byte, 8), at(1)[:8])
	}
}

func TestNotes_AnotherIncarnation_AreRemoved(t *testing.T) {
	j, n := newNotes(t)
	require.NoError(t, n.Put(1, noteOf(t, 1, 9, func(s *layout.Slot) { s.Incarnation++ })))
	require.NoError(t, n.Put(2, noteOf(t, 2, 7)))
	copy(n.place(2, 1), noteOf(t, 2, 9, func(s *layout.Slot) { s.Incarnation++ }))
	for range 2 {
		require.Equal(t, map[int][]byte{2: noteOf(t, 2, 7)}, left(t, j))
		require.Equal(t, make([]byte, 8), n.place(1, 0)[:8])
		require.Equal(t, make([]byte, 8), n.place(2, 1)[:8])
	}
}

func TestNotes_NewIncarnation_HasNone(t *testing.T) {
	j, n := newNotes(t)
	require.NoError(t, n.Put(1, noteOf(t, 1, 9)))
	j.Close()
	next, err := Create(filepath.Dir(j.Path), fileUUID, fileHost)
	require.NoError(t, err)
	t.Cleanup(next.Close)
	require.NoError(t, next.CreateNotes(noteSpace.Geometry.Locks))
	require.NoError(t, setTerm(next, aTerm()))
	require.Empty(t, left(t, next))
}

func TestNotes_FileThatIsNotTrusted_NoProcessResumes(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(j *File, path string) error
		want   string
	}{
		"missing":       {func(_ *File, path string) error { return os.Remove(path) }, "no such file"},
		"shorter":       {func(_ *File, path string) error { return os.Truncate(path, 5*notesOf) }, "want 6144 bytes"},
		"longer":        {func(_ *File, path string) error { return os.Truncate(path, 7*notesOf) }, "want 6144 bytes"},
		"of other mode": {func(_ *File, path string) error { return os.Chmod(path, 0o644) }, "mode 0644"},
		"a symlink": {func(_ *File, path string) error {
			if err := os.Rename(path, path+".x"); err != nil {
				return err
			}
			return os.Symlink(path+".x", path)
		}, "symbolic links"},
		"a flipped bit": {func(j *File, _ string) error { j.notes[notesOf+300] ^= 1; return nil }, "checksum"},
		"a flipped bit behind a whole note": {func(j *File, _ string) error {
			copy(j.SlotNotes().place(1, 1), noteOf(t, 1, 10))
			j.notes[notesOf+300] ^= 1
			return nil
		}, "checksum"},
		"another lock's": {func(j *File, _ string) error { copy(j.SlotNotes().place(2, 0), noteOf(t, 1, 9)); return nil }, "lock 2"},
		"another host's": {func(j *File, _ string) error {
			copy(j.SlotNotes().place(1, 0), noteOf(t, 1, 9, func(s *layout.Slot) { s.Host, s.Ticket = 2, layout.MakeTicket(3, 2) }))
			return nil
		}, "host 7"},
	} {
		t.Run(name, func(t *testing.T) {
			j, n := newNotes(t)
			require.NoError(t, n.Put(1, noteOf(t, 1, 9)))
			require.NoError(t, test.damage(j, j.notesPath()))
			_, err := resumeIn(filepath.Dir(j.Path))
			require.ErrorContains(t, err, "read slot notes "+j.notesPath())
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestNotes_PageThatCannotBeStored_VoidsTheHandoverFile: a full tmpfs has no page for a note, which is
// the same fault.
func TestNotes_PageThatCannotBeStored_VoidsTheHandoverFile(t *testing.T) {
	for name, change := range map[string]func(*Notes) error{
		"put":    func(n *Notes) error { return n.Put(1, noteOf(t, 1, 10)) },
		"remove": func(n *Notes) error { n.Remove(1); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			j, n := newNotes(t)
			require.NoError(t, n.Put(1, noteOf(t, 1, 9)))
			require.NoError(t, os.Truncate(j.notesPath(), 0))
			require.NoError(t, change(n), "no process resumes, and the write begins")
			require.ErrorContains(t, j.Err(), "slot to handover file")
			require.ErrorContains(t, j.Err(), "a page cannot be accessed")
			require.False(t, j.Intact())
			_, err := resumeIn(filepath.Dir(j.Path))
			require.ErrorContains(t, err, "could not write a record")
			require.NoError(t, n.Put(2, noteOf(t, 2, 10)), "nothing is kept, and nothing is wrong")
			require.NoError(t, j.Discard())
			require.NoFileExists(t, j.notesPath())
			require.NoError(t, n.Put(2, noteOf(t, 2, 11)))
		})
	}
}

const noteDirEnv = "BAKERYD_TEST_NOTES"

// The child of TestNotes_WriterKilled_AreWhole; by itself it does nothing.
func TestNotesWriterToBeKilled(t *testing.T) {
	dir := os.Getenv(noteDirEnv)
	if dir == "" {
		return
	}
	j, err := Create(dir, fileUUID, fileHost)
	require.NoError(t, err)
	require.NoError(t, j.CreateNotes(noteSpace.Geometry.Locks))
	require.NoError(t, setTerm(j, aTerm()))
	n := j.SlotNotes()
	require.NoError(t, n.Put(0, noteOf(t, 0, 1)))
	for sequence := uint64(2); ; sequence++ {
		for lock := 1; lock <= noteSpace.Geometry.Locks; lock++ {
			require.NoError(t, n.Put(lock, noteOf(t, lock, sequence)))
			if sequence%uint64(1+lock) == 0 {
				n.Remove(lock)
			}
		}
	}
}

func TestNotes_WriterKilled_AreWhole(t *testing.T) {
	for range 5 {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestNotesWriterToBeKilled$")
		child.Env = append(os.Environ(), noteDirEnv+"="+dir)
		require.NoError(t, child.Start())
		path := (&File{Path: Path(dir, fileUUID, fileHost)}).notesPath()
		ready := func() bool {
			file, err := os.ReadFile(path)
			return err == nil && bytes.Contains(file, []byte("BKSL")) && len(bytes.Trim(file[5*notesOf:], "\x00")) > 0
		}
		require.Eventually(t, ready, 30*time.Second, time.Millisecond)
		require.NoError(t, child.Process.Kill())
		require.Error(t, child.Wait())
		j, err := resumeIn(dir)
		require.NoError(t, err)
		require.Equal(t, noteOf(t, 0, 1), j.SlotNotes().Left()[0])
		j.Close()
	}
}
