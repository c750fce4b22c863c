package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/layout"
)

var fileUUID = layout.UUID{1, 2, 3}

const fileHost = 7

func aTerm() Term {
	return Term{Format: fileFormat, UUID: fileUUID, Boot: hostid.BootID(), HostID: fileHost, Incarnation: 0xfedcba9876543210, T0: 12345, Ready: true}
}

func aSession(n int) Session {
	return Session{
		ID: fmt.Sprintf("%032x", n), Nth: uint64(n), State: Granted, Name: "db/ä <1>", Lock: 3, Creation: 4,
		Mode: layout.Shared, Permits: 2, PID: 99, Command: "sh -c 'x && y'", Peer: 98, PeerStarted: 97,
		Token: layout.MakeTicket(1000, fileHost).Grant(2), Since: time.Unix(1e9, 5).UTC(), Witness: true,
	}
}

// newFile returns a handover file with a term.
func newFile(t testing.TB) *File {
	t.Helper()
	j, err := Create(t.TempDir(), fileUUID, fileHost)
	require.NoError(t, err)
	t.Cleanup(j.Close)
	require.NoError(t, setTerm(j, aTerm()))
	return j
}

// setTerm, put and removeFrom return why the file is void.
func setTerm(j *File, t Term) error { j.PutTerm(t); return j.Err() }

func put(j *File, s Session) error {
	j.Reserve(s.ID)
	j.Put(s)
	return j.Err()
}

func removeFrom(j *File, id string) error { j.Remove(id); return j.Err() }

// readFile reads a handover file as the next process does.
func readFile(path string) (Term, []Session, error) {
	j, term, sessions, err := Resume(filepath.Dir(path), fileUUID, fileHost, clock.Boottime.Now())
	if err == nil {
		j.Close()
	}
	return term, sessions, err
}

func read(t testing.TB, j *File) (Term, []Session) {
	t.Helper()
	term, sessions, err := readFile(j.Path)
	require.NoError(t, err)
	return term, sessions
}

func TestFileGivesBackWhatWasPut(t *testing.T) {
	j := newFile(t)
	require.NoError(t, put(j, aSession(1)))
	waiting := Session{ID: strings.Repeat("ab", 16), State: Waiting, Name: "x"}
	require.NoError(t, put(j, waiting))
	released := aSession(3)
	released.State = Released
	require.NoError(t, put(j, released))
	term, sessions := read(t, j)
	require.Equal(t, aTerm(), term)
	require.Equal(t, []Session{aSession(1), waiting, released}, sessions)

	later := aTerm()
	later.T0, later.Ready = 23456, false
	require.NoError(t, setTerm(j, later))
	again := aSession(1)
	again.State, again.Token = Released, 0
	require.NoError(t, put(j, again))
	term, sessions = read(t, j)
	require.Equal(t, later, term)
	require.Equal(t, []Session{again, waiting, released}, sessions)

	unconfirmed := aSession(5)
	unconfirmed.Unconfirmed = true
	for range 2 { // text 0 and text 1 of its cell
		require.NoError(t, put(j, unconfirmed))
		_, sessions = read(t, j)
		require.Equal(t, unconfirmed, sessions[3])
		j.Release(unconfirmed.ID)
		j.Release(unconfirmed.ID)
		_, sessions = read(t, j)
		gone := aSession(5)
		gone.State = Released
		require.Equal(t, gone, sessions[3])
	}
	j.Remove(unconfirmed.ID)
	j.Release(unconfirmed.ID)
	_, sessions = read(t, j)
	require.Equal(t, []Session{again, waiting, released}, sessions)

	long := aSession(4)
	long.Command = strings.Repeat("ä", 1000) + "\n"
	require.NoError(t, put(j, long))
	_, sessions = read(t, j)
	require.Equal(t, strings.Repeat("ä", layout.MaxCommand/2), sessions[3].Command)

	info, err := os.Stat(j.Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestFileUsesFreedCellsAgain(t *testing.T) {
	j := newFile(t)
	for n := range 4 {
		require.NoError(t, put(j, aSession(n)))
	}
	require.NoError(t, removeFrom(j, aSession(1).ID))
	require.NoError(t, removeFrom(j, aSession(2).ID))
	require.NoError(t, removeFrom(j, aSession(2).ID))
	require.NoError(t, removeFrom(j, strings.Repeat("f", 32)))
	_, sessions := read(t, j)
	require.Equal(t, []Session{aSession(0), aSession(3)}, sessions)
	for n := 4; n < 7; n++ {
		require.NoError(t, put(j, aSession(n)))
	}
	_, sessions = read(t, j)
	require.Equal(t, []Session{aSession(0), aSession(5), aSession(4), aSession(3), aSession(6)}, sessions)
}

func TestSuccessorContinuesTheSameFile(t *testing.T) {
	j := newFile(t)
	for n := range 3 {
		require.NoError(t, put(j, aSession(n)))
	}
	require.NoError(t, removeFrom(j, aSession(1).ID))
	j.Close()
	require.NoError(t, put(j, aSession(9)), "closed: nothing is kept, and nothing is wrong")

	next, term, sessions, err := Resume(filepath.Dir(j.Path), fileUUID, fileHost, clock.Boottime.Now())
	require.NoError(t, err)
	t.Cleanup(next.Close)
	require.Equal(t, aTerm(), term)
	require.Equal(t, []Session{aSession(0), aSession(2)}, sessions)
	require.True(t, next.Intact())
	require.NoError(t, removeFrom(next, aSession(0).ID))
	for n := 3; n < 6; n++ {
		require.NoError(t, put(next, aSession(n)))
	}
	_, sessions = read(t, next)
	require.Equal(t, []Session{aSession(3), aSession(4), aSession(2), aSession(5)}, sessions)
}

func TestFileIsWrittenByManyAtOnce(t *testing.T) {
	j := newFile(t)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() { scribble(t, j, w, 200) })
	}
	writers.Wait()
	_, sessions := read(t, j)
	require.Len(t, sessions, 4)
	require.Len(t, j.free, chunk-5)
}

// scribble writes into a handover file, as one of several.
func scribble(t *testing.T, j *File, writer, rounds int) {
	for round := range rounds {
		s := aSession(writer)
		s.Nth = uint64(round)
		if err := errors.Join(put(j, s), setTerm(j, aTerm()), removeFrom(j, s.ID), put(j, s)); err != nil {
			t.Error(err)
		}
	}
}

const fileDirEnv = "BAKERYD_TEST_HANDOVER"

// The child of TestFileOutlivesItsWriter; by itself it does nothing.
func TestFileWriterToBeKilled(t *testing.T) {
	dir := os.Getenv(fileDirEnv)
	if dir == "" {
		return
	}
	j, err := Create(dir, fileUUID, fileHost)
	require.NoError(t, err)
	require.NoError(t, setTerm(j, aTerm()))
	require.NoError(t, put(j, aSession(9)))
	for w := range 4 {
		go scribble(t, j, w, 1<<30)
	}
	select {}
}

func TestFileOutlivesItsWriter(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestFileWriterToBeKilled$")
		child.Env = append(os.Environ(), fileDirEnv+"="+dir)
		require.NoError(t, child.Start())
		path := Path(dir, fileUUID, fileHost)
		ready := func() bool {
			file, err := os.ReadFile(path)
			return err == nil && bytes.Contains(file, []byte(aSession(3).ID))
		}
		require.Eventually(t, ready, 30*time.Second, time.Millisecond)
		require.NoError(t, child.Process.Kill())
		require.Error(t, child.Wait())
		_, sessions, err := readFile(path)
		require.NoError(t, err)
		require.Equal(t, aSession(9), sessions[0])
	}
}

func TestLongestSessionFitsIntoItsCell(t *testing.T) {
	j := newFile(t)
	s := aSession(1)
	s.ID = strings.Repeat("f", 32)
	s.Name, s.Command = strings.Repeat("<", layout.MaxLockName), strings.Repeat("&", layout.MaxCommand)
	s.Nth, s.PeerStarted, s.Creation = 1<<64-1, 1<<64-1, 1<<64-1
	s.Lock, s.Permits, s.PID, s.Peer = layout.MaxLocks, layout.MaxHosts, 1<<31-1, 1<<31-1
	s.State = Released
	s.Token = layout.MakeTicket(layout.MaxNumber, fileHost).Grant(layout.MaxGrants - 1)
	s.Since = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
	require.NoError(t, put(j, s))
	_, sessions := read(t, j)
	require.Equal(t, []Session{s}, sessions)
}

func TestFileThatCannotBeWrittenIsVoidForGood(t *testing.T) {
	tests := map[string]struct {
		fail func(*File) error
		want string
	}{
		"the file is full": {func(j *File) error {
			j.end = MaxCells
			return many(j)
		}, "more than 65535 sessions"},
		"no cell": {func(j *File) error {
			j.free = nil
			j.Put(aSession(2))
			return j.Err()
		}, "no cell is reserved"},
		"a bad session": {func(j *File) error {
			s := aSession(2)
			s.Name = ""
			return put(j, s)
		}, "lock name of 0 bytes"},
		"a bad term":      {func(j *File) error { return setTerm(j, Term{}) }, "write term to handover file"},
		"another host id": {func(j *File) error { t := aTerm(); t.HostID++; return setTerm(j, t) }, "of host id 8"},
		"sessions of another incarnation": {func(j *File) error {
			t := aTerm()
			t.Incarnation = 5
			return setTerm(j, t)
		}, "incarnation 0000000000000005 over 1 sessions of fedcba9876543210"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			j := newFile(t)
			require.NoError(t, put(j, aSession(1)))
			require.True(t, j.Intact())
			err := test.fail(j)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, j.Path)
			<-j.Void()
			require.False(t, j.Intact())
			_, _, voided := readFile(j.Path)
			require.ErrorContains(t, voided, "cell 0: the previous bakeryd could not write a record")
			require.Equal(t, err, put(j, aSession(3)), "the first error")
			require.Equal(t, err, setTerm(j, aTerm()))
			require.Equal(t, err, removeFrom(j, aSession(1).ID))
			_, _, again := readFile(j.Path)
			require.Equal(t, voided, again)
			require.NoError(t, j.Discard())
			require.NoFileExists(t, j.Path)
		})
	}
}

// many puts one session more than there is room for.
func many(j *File) error {
	for n := range len(j.free) + 1 {
		if err := put(j, aSession(100+n)); err != nil {
			return err
		}
	}
	return nil
}

// TestFile_FullDisk_IsVoidWhenItGrows: the file is /dev/full, as if the disk became full. A limit on the
// size of files would affect the whole process.
func TestFile_FullDisk_IsVoidWhenItGrows(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	require.NoError(t, err)
	j := newFile(t)
	j.file.Close()
	j.file = full
	for n := range chunk - 1 {
		require.NoError(t, put(j, aSession(n)), "there is room")
	}
	err = put(j, aSession(chunk))
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "write more cells to handover file "+j.Path)
	_, _, err = readFile(j.Path)
	require.ErrorContains(t, err, "cell 0: the previous bakeryd could not write a record")
}

// TestFile_TruncatedByAnother_IsVoid: an access to a page that is gone does not end the process.
func TestFile_TruncatedByAnother_IsVoid(t *testing.T) {
	for name, change := range map[string]func(*File){
		"put":    func(j *File) { j.Put(aSession(1)) },
		"remove": func(j *File) { j.Remove(aSession(1).ID) },
		"term":   func(j *File) { j.PutTerm(aTerm()) },
	} {
		t.Run(name, func(t *testing.T) {
			j := newFile(t)
			require.NoError(t, put(j, aSession(1)))
			require.NoError(t, os.Truncate(j.Path, 0))
			change(j)
			require.ErrorContains(t, j.Err(), "a page cannot be accessed")
			require.NoFileExists(t, j.Path, "it could not be marked as void")
		})
	}
}

// TestFile_PanicInAChange_IsNotHidden: only accesses to pages that are gone are errors.
func TestFile_PanicInAChange_IsNotHidden(t *testing.T) {
	j := newFile(t)
	require.Panics(t, func() { j.change("x", func() error { return *(*error)(nil) }) })
	require.PanicsWithValue(t, "x", func() { j.change("x", func() error { panic("x") }) })
}

// TestFile_ManySessions_Grows: the file is extended for sessions that have no cell, and used again.
func TestFile_ManySessions_Grows(t *testing.T) {
	j := newFile(t)
	const n = 5 * chunk
	var all []Session
	for i := range n {
		require.NoError(t, put(j, aSession(i)))
		all = append(all, aSession(i))
	}
	_, sessions := read(t, j)
	require.Equal(t, all, sessions)
	for _, s := range all {
		j.Remove(s.ID)
	}
	var adding sync.WaitGroup
	for i := range n {
		adding.Go(func() { assert.NoError(t, put(j, aSession(i))) })
	}
	adding.Wait()
	_, sessions = read(t, j)
	require.ElementsMatch(t, all, sessions)
	info, err := os.Stat(j.Path)
	require.NoError(t, err)
	require.EqualValues(t, (n+chunk)*cellSize, info.Size())
	require.NoError(t, j.Discard())
	require.NoError(t, many(j), "closed")
}

// TestFile_Reserved_HasACellUntilRemoved: also if it is reserved again, and never written.
func TestFile_Reserved_HasACellUntilRemoved(t *testing.T) {
	j := newFile(t)
	for range chunk {
		j.Reserve(aSession(1).ID)
	}
	require.Len(t, j.free, chunk-2)
	_, sessions := read(t, j)
	require.Empty(t, sessions)
	j.Remove(aSession(1).ID)
	require.Len(t, j.free, chunk-1)
}

// TestStore_CutAnywhere_LeavesTheEarlierRecord: a writer that is killed in the middle of a store leaves
// the record from before, however much of the text it has written.
func TestStore_CutAnywhere_LeavesTheEarlierRecord(t *testing.T) {
	for rounds := range 3 { // text 0 and text 1 of a cell are valid in turns
		j := newFile(t)
		for range rounds {
			require.NoError(t, put(j, aSession(1)))
		}
		for _, before := range []Session{aSession(1), sessionOf(func(s *Session) { s.State, s.Token = Waiting, 0 })} {
			require.NoError(t, put(j, before))
			after := before
			after.State, after.Token, after.Cgroup = Released, layout.MakeTicket(7, fileHost), ""
			at := j.cells[before.ID]
			cell := j.mem[at*cellSize:][:cellSize]
			saved := bytes.Clone(cell)
			require.NoError(t, store(cell, func(to []byte) []byte {
				text := after.append(nil)
				for i, c := range text {
					_, sessions := read(t, j)
					require.Equal(t, []Session{before}, sessions, "cut at byte %d", i)
					to = append(to, c)
				}
				_, sessions := read(t, j)
				require.Equal(t, []Session{before}, sessions)
				return to
			}))
			_, sessions := read(t, j)
			require.Equal(t, []Session{after}, sessions)
			copy(cell, saved)
		}
	}
}

// TestFile_AnyBitChanged_IsVoidOrTheSame: no damage is taken for a store that was cut.
func TestFile_AnyBitChanged_IsVoidOrTheSame(t *testing.T) {
	j := newFile(t)
	for n := range 3 {
		for range n + 1 {
			require.NoError(t, put(j, aSession(n)))
		}
	}
	require.NoError(t, removeFrom(j, aSession(2).ID))
	j.Release(aSession(1).ID)
	term, sessions := read(t, j)
	file, err := os.ReadFile(j.Path)
	require.NoError(t, err)
	want := Term{UUID: fileUUID, Boot: hostid.BootID(), HostID: fileHost}
	void := 0
	for bit := 0; bit < 5*cellSize*8; bit++ { // with a cell that was never used
		if at := bit / 8 % cellSize; at >= sealSize && bit%8 != at%8 {
			continue // one bit of each byte of a text
		}
		file[bit/8] ^= 1 << (bit % 8)
		c, err := decodeFile(bytes.NewReader(file), int64(len(file)), want, 1<<40)
		if err != nil {
			void++
		} else {
			require.Equal(t, term, c.term)
			require.Equal(t, sessions, c.sessions, "bit %d", bit)
		}
		file[bit/8] ^= 1 << (bit % 8)
	}
	length := len(textOf(file))
	for n := range 2 {
		s := aSession(n)
		length += len(s.append(nil))
	}
	require.Equal(t, 8*5*sealSize+length, void, "all that are used")
}

func TestFileWithoutATerm(t *testing.T) {
	dir := t.TempDir()
	j, err := Create(dir, fileUUID, fileHost)
	require.NoError(t, err)
	require.False(t, j.Intact())
	_, _, err = readFile(j.Path)
	require.ErrorContains(t, err, "cell 0: unexpected end")
	require.ErrorContains(t, put(j, aSession(1)), "no term yet")
}

func TestDiscardedFile(t *testing.T) {
	for _, closed := range []bool{false, true} {
		j := newFile(t)
		if closed {
			j.Close()
		}
		require.NoError(t, j.Discard())
		require.NoFileExists(t, j.Path)
		require.NoError(t, j.Discard())
		require.NoError(t, put(j, aSession(1)))
		_, _, err := readFile(j.Path)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, "read handover file "+j.Path+": no such file")
	}
}

func TestNewJournalReplacesTheOld(t *testing.T) {
	j := newFile(t)
	require.NoError(t, put(j, aSession(1)))
	j.Close()
	next, err := Create(filepath.Dir(j.Path), fileUUID, fileHost)
	require.NoError(t, err)
	t.Cleanup(next.Close)
	require.NoError(t, setTerm(next, aTerm()))
	_, sessions := read(t, next)
	require.Empty(t, sessions)
}

func TestFindJournals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [*]? name")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Empty(t, Find(dir, fileUUID))
	var want []int
	for _, host := range []int{3, 12} {
		j, err := Create(dir, fileUUID, host)
		require.NoError(t, err)
		j.Close()
		want = append(want, host)
	}
	other, err := Create(dir, layout.UUID{9}, 3)
	require.NoError(t, err)
	other.Close()
	for _, name := range []string{"x", "0", "03", "+3", "2001", "3-4"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fileUUID.String()+"-"+name+".state"), nil, 0o600))
	}
	require.ElementsMatch(t, want, Find(dir, fileUUID))
}

// One grant costs one of these.
func BenchmarkJournalPut(b *testing.B) {
	j := newFile(b)
	s := aSession(1)
	s.Name, s.Command = "backup/db", "pg_dump --all" // plain, as most are
	b.ReportAllocs()
	for b.Loop() {
		s.Nth++
		if err := put(j, s); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzSessionRecord: append writes the same as encoding/json, and it decodes to the same record.
func FuzzSessionRecord(f *testing.F) {
	f.Add(uint64(1), "db/ä <1>", 3, uint64(4), 2, 99, "sh -c 'x && y'", uint64(97), uint64(1), int64(1e18), true, uint8(2))
	f.Add(uint64(0), "x", 0, uint64(0), 0, 0, "", uint64(0), uint64(0), int64(0), false, uint8(0))
	f.Fuzz(func(t *testing.T, nth uint64, name string, lock int, creation uint64, permits, pid int, command string, started, n uint64,
		since int64, flag bool, kind uint8) {
		r := Session{
			ID: fmt.Sprintf("%032x", n), Nth: nth, State: []State{Waiting, Granted, Released}[kind%3], Name: name,
			Lock: lock, Creation: creation, Mode: layout.Mode(kind / 3 % 2), Permits: permits, LockPermits: permits, PID: pid,
			Command: layout.TruncateCommand(command), Peer: pid, PeerStarted: started, PeerUID: lock, Witness: flag, Unconfirmed: flag,
		}
		if since != 0 {
			r.Since = time.Unix(0, since).UTC()
		}
		if r.State != Waiting {
			r.Token = layout.MakeTicket(n%(1<<40)+1, fileHost)
		}
		if r.check(fileHost) != nil {
			return
		}
		byHand := r.append(nil)
		byJSON, err := json.Marshal(r)
		require.NoError(t, err)
		require.Equal(t, string(byJSON), string(byHand))
		var again Session
		require.NoError(t, decode(byHand, &again))
	})
}
