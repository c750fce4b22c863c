package handover

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
	require.NoError(t, j.SetTerm(aTerm()))
	return j
}

// SetTerm, Put and Remove return when the file has the change.
func (j *File) SetTerm(t Term) error   { return j.Wait(j.QueueTerm(t)) }
func (j *File) Put(s Session) error    { return j.Wait(j.QueuePut(s)) }
func (j *File) Remove(id string) error { return j.Wait(j.QueueRemove(id)) }

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
	require.NoError(t, j.Put(aSession(1)))
	waiting := Session{ID: strings.Repeat("ab", 16), State: Waiting, Name: "x"}
	require.NoError(t, j.Put(waiting))
	released := aSession(3)
	released.State = Released
	require.NoError(t, j.Put(released))
	term, sessions := read(t, j)
	require.Equal(t, aTerm(), term)
	require.Equal(t, []Session{aSession(1), waiting, released}, sessions)

	later := aTerm()
	later.T0, later.Ready = 23456, false
	require.NoError(t, j.SetTerm(later))
	again := aSession(1)
	again.State, again.Token = Released, 0
	require.NoError(t, j.Put(again))
	term, sessions = read(t, j)
	require.Equal(t, later, term)
	require.Equal(t, []Session{again, waiting, released}, sessions)

	long := aSession(4)
	long.Command = strings.Repeat("ä", 1000) + "\n"
	require.NoError(t, j.Put(long))
	_, sessions = read(t, j)
	require.Equal(t, strings.Repeat("ä", layout.MaxCommand/2), sessions[3].Command)

	info, err := os.Stat(j.Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestFileUsesFreedCellsAgain(t *testing.T) {
	j := newFile(t)
	for n := range 4 {
		require.NoError(t, j.Put(aSession(n)))
	}
	require.NoError(t, j.Remove(aSession(1).ID))
	require.NoError(t, j.Remove(aSession(2).ID))
	require.NoError(t, j.Remove(aSession(2).ID))
	require.NoError(t, j.Remove(strings.Repeat("f", 32)))
	_, sessions := read(t, j)
	require.Equal(t, []Session{aSession(0), aSession(3)}, sessions)
	for n := 4; n < 7; n++ {
		require.NoError(t, j.Put(aSession(n)))
	}
	_, sessions = read(t, j)
	require.Equal(t, []Session{aSession(0), aSession(5), aSession(4), aSession(3), aSession(6)}, sessions)
}

func TestSuccessorContinuesTheSameFile(t *testing.T) {
	j := newFile(t)
	for n := range 3 {
		require.NoError(t, j.Put(aSession(n)))
	}
	require.NoError(t, j.Remove(aSession(1).ID))
	j.Close()
	require.NoError(t, j.Put(aSession(9)), "closed: nothing is kept, and nothing is wrong")

	next, term, sessions, err := Resume(filepath.Dir(j.Path), fileUUID, fileHost, clock.Boottime.Now())
	require.NoError(t, err)
	t.Cleanup(next.Close)
	require.Equal(t, aTerm(), term)
	require.Equal(t, []Session{aSession(0), aSession(2)}, sessions)
	require.True(t, next.Intact())
	require.NoError(t, next.Remove(aSession(0).ID))
	for n := 3; n < 6; n++ {
		require.NoError(t, next.Put(aSession(n)))
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
	require.LessOrEqual(t, j.end, 5)
}

// scribble writes into a handover file, as one of several.
func scribble(t *testing.T, j *File, writer, rounds int) {
	for round := range rounds {
		s := aSession(writer)
		s.Nth = uint64(round)
		if err := errors.Join(j.Put(s), j.SetTerm(aTerm()), j.Remove(s.ID), j.Put(s)); err != nil {
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
	require.NoError(t, j.SetTerm(aTerm()))
	require.NoError(t, j.Put(aSession(9)))
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
		cells := func() int64 {
			info, err := os.Stat(path)
			if err != nil {
				return 0
			}
			return info.Size() / cellSize
		}
		require.Eventually(t, func() bool { return cells() >= 4 }, 30*time.Second, time.Millisecond)
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
	require.NoError(t, j.Put(s))
	_, sessions := read(t, j)
	require.Equal(t, []Session{s}, sessions)
}

func TestFileThatCannotBeWrittenIsVoidForGood(t *testing.T) {
	tests := map[string]struct {
		fail func(*File) error
		want string
	}{
		"the file cannot be written": {func(j *File) error {
			j.file.Close()
			return j.Put(aSession(2))
		}, "write session to handover file"},
		"the file is full": {func(j *File) error {
			j.end = MaxCells
			return j.Put(aSession(2))
		}, "more than 65535 sessions"},
		"a bad session": {func(j *File) error {
			s := aSession(2)
			s.Name = ""
			return j.Put(s)
		}, "lock name of 0 bytes"},
		"a bad term":      {func(j *File) error { return j.SetTerm(Term{}) }, "write term to handover file"},
		"another host id": {func(j *File) error { t := aTerm(); t.HostID++; return j.SetTerm(t) }, "of host id 8"},
		"sessions of another incarnation": {func(j *File) error {
			t := aTerm()
			t.Incarnation = 5
			return j.SetTerm(t)
		}, "incarnation 0000000000000005 over 1 sessions of fedcba9876543210"},
		"a removal": {func(j *File) error {
			j.file.Close()
			return j.Remove(aSession(1).ID)
		}, "write removal to handover file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			j := newFile(t)
			require.NoError(t, j.Put(aSession(1)))
			require.True(t, j.Intact())
			err := test.fail(j)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, j.Path)
			require.NoFileExists(t, j.Path)
			require.False(t, j.Intact())
			require.NoError(t, j.Put(aSession(3)), "told once")
			require.NoError(t, j.SetTerm(aTerm()))
			require.NoError(t, j.Remove(aSession(1).ID))
			require.NoError(t, j.Discard())
			require.NoFileExists(t, j.Path)
		})
	}
}

// The file is /dev/full, as if the disk became full. A limit on the size of files would affect the
// whole process.
func TestFileOnAFullDiskIsVoid(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	require.NoError(t, err)
	j := newFile(t)
	j.file.Close()
	j.file = full
	require.ErrorIs(t, j.Put(aSession(1)), unix.ENOSPC)
	require.NoFileExists(t, j.Path)
}

func TestFileWithoutATerm(t *testing.T) {
	dir := t.TempDir()
	j, err := Create(dir, fileUUID, fileHost)
	require.NoError(t, err)
	require.False(t, j.Intact())
	_, _, err = readFile(j.Path)
	require.ErrorContains(t, err, "0 bytes, want 1 to 65536 cells")
	require.ErrorContains(t, j.Put(aSession(1)), "no term yet")
	require.NoFileExists(t, j.Path)
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
		require.NoError(t, j.Put(aSession(1)))
		_, _, err := readFile(j.Path)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, "read handover file "+j.Path+": no such file")
	}
}

func TestNewJournalReplacesTheOld(t *testing.T) {
	j := newFile(t)
	require.NoError(t, j.Put(aSession(1)))
	j.Close()
	next, err := Create(filepath.Dir(j.Path), fileUUID, fileHost)
	require.NoError(t, err)
	t.Cleanup(next.Close)
	require.NoError(t, next.SetTerm(aTerm()))
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
	b.ReportAllocs()
	for b.Loop() {
		s.Nth++
		if err := j.Put(s); err != nil {
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
		var byHand, byJSON [cellSize]byte
		require.NoError(t, sealCell(byHand[:], r.append(byHand[cellText:cellText])))
		require.NoError(t, encodeCell(byJSON[:], r))
		require.Equal(t, string(byJSON[cellText:]), string(byHand[cellText:]))
		require.Equal(t, byJSON, byHand)
		var again Session
		require.NoError(t, decodeCell(byHand[:], &again))
	})
}
