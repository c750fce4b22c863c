package daemon

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

var journalUUID = layout.UUID{1, 2, 3}

const journalHost = 7

func aTerm() termRecord {
	return termRecord{UUID: journalUUID, Boot: hostid.BootID(), HostID: journalHost, Incarnation: 0xfedcba9876543210, T0: 12345, Ready: true}
}

func aSession(n int) sessionRecord {
	return sessionRecord{
		ID: fmt.Sprintf("%032x", n), Nth: uint64(n), State: sessionGranted, Name: "db/ä <1>", Lock: 3, Creation: 4,
		Mode: layout.Shared, Permits: 2, PID: 99, Command: "sh -c 'x && y'", Peer: 98, PeerStarted: 97,
		Token: layout.MakeTicket(1000, journalHost).Grant(2), Since: time.Unix(1e9, 5).UTC(), Deadline: 6, Witness: true, Try: true,
	}
}

// newJournal returns a journal with a term.
func newJournal(t testing.TB) *journal {
	t.Helper()
	j, err := openJournal(t.TempDir(), journalUUID, journalHost)
	require.NoError(t, err)
	t.Cleanup(j.close)
	require.NoError(t, j.setTerm(aTerm()))
	return j
}

func read(t testing.TB, j *journal) (termRecord, []sessionRecord) {
	t.Helper()
	term, sessions, err := readJournal(j.path, clock.Boottime.Now())
	require.NoError(t, err)
	return term, sessions
}

func TestJournalGivesBackWhatWasPut(t *testing.T) {
	j := newJournal(t)
	require.NoError(t, j.put(aSession(1)))
	waiting := sessionRecord{ID: strings.Repeat("ab", 16), State: sessionWaiting, Name: "x"}
	require.NoError(t, j.put(waiting))
	released := aSession(3)
	released.State = sessionReleased
	require.NoError(t, j.put(released))
	term, sessions := read(t, j)
	require.Equal(t, aTerm(), term)
	require.Equal(t, []sessionRecord{aSession(1), waiting, released}, sessions)

	later := aTerm()
	later.T0, later.Ready = 23456, false
	require.NoError(t, j.setTerm(later))
	again := aSession(1)
	again.State, again.Token = sessionReleased, 0
	require.NoError(t, j.put(again))
	term, sessions = read(t, j)
	require.Equal(t, later, term)
	require.Equal(t, []sessionRecord{again, waiting, released}, sessions)

	long := aSession(4)
	long.Command = strings.Repeat("ä", 1000) + "\n"
	require.NoError(t, j.put(long))
	_, sessions = read(t, j)
	require.Equal(t, strings.Repeat("ä", layout.MaxCommand/2), sessions[3].Command)

	info, err := os.Stat(j.path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestJournalUsesFreedCellsAgain(t *testing.T) {
	j := newJournal(t)
	for n := range 4 {
		require.NoError(t, j.put(aSession(n)))
	}
	require.NoError(t, j.remove(aSession(1).ID))
	require.NoError(t, j.remove(aSession(2).ID))
	require.NoError(t, j.remove(aSession(2).ID))
	require.NoError(t, j.remove(strings.Repeat("f", 32)))
	_, sessions := read(t, j)
	require.Equal(t, []sessionRecord{aSession(0), aSession(3)}, sessions)
	for n := 4; n < 7; n++ {
		require.NoError(t, j.put(aSession(n)))
	}
	_, sessions = read(t, j)
	require.Equal(t, []sessionRecord{aSession(0), aSession(5), aSession(4), aSession(3), aSession(6)}, sessions)
}

func TestSuccessorGoesOnInTheSameJournal(t *testing.T) {
	j := newJournal(t)
	for n := range 3 {
		require.NoError(t, j.put(aSession(n)))
	}
	require.NoError(t, j.remove(aSession(1).ID))
	j.close()
	require.NoError(t, j.put(aSession(9)), "closed: nothing is kept, and nothing is wrong")

	next, term, sessions, err := resumeJournal(filepath.Dir(j.path), journalUUID, journalHost, clock.Boottime.Now())
	require.NoError(t, err)
	t.Cleanup(next.close)
	require.Equal(t, aTerm(), term)
	require.Equal(t, []sessionRecord{aSession(0), aSession(2)}, sessions)
	require.True(t, next.intact())
	require.NoError(t, next.remove(aSession(0).ID))
	for n := 3; n < 6; n++ {
		require.NoError(t, next.put(aSession(n)))
	}
	_, sessions = read(t, next)
	require.Equal(t, []sessionRecord{aSession(3), aSession(4), aSession(2), aSession(5)}, sessions)
}

func TestJournalIsWrittenByManyAtOnce(t *testing.T) {
	j := newJournal(t)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() { scribble(t, j, w, 200) })
	}
	writers.Wait()
	_, sessions := read(t, j)
	require.Len(t, sessions, 4)
	require.LessOrEqual(t, j.end, 5)
}

// scribble writes into a journal, as one of several.
func scribble(t *testing.T, j *journal, writer, rounds int) {
	for round := range rounds {
		s := aSession(writer)
		s.Nth = uint64(round)
		if err := errors.Join(j.put(s), j.setTerm(aTerm()), j.remove(s.ID), j.put(s)); err != nil {
			t.Error(err)
		}
	}
}

const journalDirEnv = "BAKERYD_TEST_JOURNAL"

// The child of TestJournalOutlivesItsWriter; by itself it does nothing.
func TestJournalWriterToBeKilled(t *testing.T) {
	dir := os.Getenv(journalDirEnv)
	if dir == "" {
		return
	}
	j, err := openJournal(dir, journalUUID, journalHost)
	require.NoError(t, err)
	require.NoError(t, j.setTerm(aTerm()))
	require.NoError(t, j.put(aSession(9)))
	for w := range 4 {
		go scribble(t, j, w, 1<<30)
	}
	select {}
}

func TestJournalOutlivesItsWriter(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestJournalWriterToBeKilled$")
		child.Env = append(os.Environ(), journalDirEnv+"="+dir)
		require.NoError(t, child.Start())
		path := journalPath(dir, journalUUID, journalHost)
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
		_, sessions, err := readJournal(path, clock.Boottime.Now())
		require.NoError(t, err)
		require.Equal(t, aSession(9), sessions[0])
	}
}

func TestLongestSessionFitsIntoItsCell(t *testing.T) {
	j := newJournal(t)
	s := aSession(1)
	s.ID = strings.Repeat("f", 32)
	s.Name, s.Command = strings.Repeat("<", layout.MaxLockName), strings.Repeat("&", layout.MaxCommand)
	s.Nth, s.PeerStarted, s.Creation = 1<<64-1, 1<<64-1, 1<<64-1
	s.Lock, s.Permits, s.PID, s.Peer = layout.MaxLocks, layout.MaxHosts, 1<<31-1, 1<<31-1
	s.State, s.Deadline = sessionReleased, 1<<63-1
	s.Token = layout.MakeTicket(layout.MaxNumber, journalHost).Grant(layout.MaxGrants - 1)
	s.Since = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
	require.NoError(t, j.put(s))
	_, sessions := read(t, j)
	require.Equal(t, []sessionRecord{s}, sessions)
}

func TestJournalThatCannotBeWrittenIsVoidForGood(t *testing.T) {
	tests := map[string]struct {
		fail func(*journal) error
		want string
	}{
		"the file cannot be written": {func(j *journal) error {
			j.file.Close()
			return j.put(aSession(2))
		}, "write session into journal"},
		"the file is full": {func(j *journal) error {
			j.end = journalCells
			return j.put(aSession(2))
		}, "more than 65535 sessions"},
		"a bad session": {func(j *journal) error {
			s := aSession(2)
			s.Name = ""
			return j.put(s)
		}, "lock name of 0 bytes"},
		"a bad term":      {func(j *journal) error { return j.setTerm(termRecord{}) }, "write term into journal"},
		"another host id": {func(j *journal) error { t := aTerm(); t.HostID++; return j.setTerm(t) }, "of host id 8"},
		"sessions of another incarnation": {func(j *journal) error {
			t := aTerm()
			t.Incarnation = 5
			return j.setTerm(t)
		}, "incarnation 0000000000000005 over 1 sessions of fedcba9876543210"},
		"a removal": {func(j *journal) error {
			j.file.Close()
			return j.remove(aSession(1).ID)
		}, "write removal into journal"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			require.NoError(t, j.put(aSession(1)))
			require.True(t, j.intact())
			err := test.fail(j)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, j.path)
			require.NoFileExists(t, j.path)
			require.False(t, j.intact())
			require.NoError(t, j.put(aSession(3)), "told once")
			require.NoError(t, j.setTerm(aTerm()))
			require.NoError(t, j.remove(aSession(1).ID))
			require.NoError(t, j.discard())
			require.NoFileExists(t, j.path)
		})
	}
}

// The disk is full in the middle of a write: what a process's limit on the
// size of files does as well, but to the whole process. So the file is one
// that is always full.
func TestJournalOnAFullDiskIsVoid(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	require.NoError(t, err)
	j := newJournal(t)
	j.file.Close()
	j.file = full
	require.ErrorIs(t, j.put(aSession(1)), unix.ENOSPC)
	require.NoFileExists(t, j.path)
}

func TestJournalWithoutATerm(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, journalUUID, journalHost)
	require.NoError(t, err)
	require.False(t, j.intact())
	_, _, err = readJournal(j.path, clock.Boottime.Now())
	require.ErrorContains(t, err, "0 bytes, want 1 to 65536 cells")
	require.ErrorContains(t, j.put(aSession(1)), "no term yet")
	require.NoFileExists(t, j.path)
}

func TestDiscardedJournal(t *testing.T) {
	for _, closed := range []bool{false, true} {
		j := newJournal(t)
		if closed {
			j.close()
		}
		require.NoError(t, j.discard())
		require.NoFileExists(t, j.path)
		require.NoError(t, j.discard())
		require.NoError(t, j.put(aSession(1)))
		_, _, err := readJournal(j.path, clock.Boottime.Now())
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, "read journal "+j.path+": no such file")
	}
}

func TestNewJournalReplacesTheOld(t *testing.T) {
	j := newJournal(t)
	require.NoError(t, j.put(aSession(1)))
	j.close()
	next, err := openJournal(filepath.Dir(j.path), journalUUID, journalHost)
	require.NoError(t, err)
	t.Cleanup(next.close)
	require.NoError(t, next.setTerm(aTerm()))
	_, sessions := read(t, next)
	require.Empty(t, sessions)
}

func TestFindJournals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [*]? name")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Empty(t, findJournals(dir, journalUUID))
	var want []string
	for _, host := range []int{3, 12} {
		j, err := openJournal(dir, journalUUID, host)
		require.NoError(t, err)
		j.close()
		want = append(want, j.path)
	}
	other, err := openJournal(dir, layout.UUID{9}, 3)
	require.NoError(t, err)
	other.close()
	for _, name := range []string{"x", "0", "03", "+3", "2001", "3-4"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, journalUUID.String()+"-"+name+".state"), nil, 0o600))
	}
	require.ElementsMatch(t, want, findJournals(dir, journalUUID))
}

// One grant costs one of these.
func BenchmarkJournalPut(b *testing.B) {
	j := newJournal(b)
	s := aSession(1)
	b.ReportAllocs()
	for b.Loop() {
		s.Nth++
		if err := j.put(s); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzSessionRecord: what is written by hand is what encoding/json writes, and is read again.
func FuzzSessionRecord(f *testing.F) {
	f.Add(uint64(1), "db/ä <1>", 3, uint64(4), 2, 99, "sh -c 'x && y'", uint64(97), uint64(1), int64(1e18), true, uint8(2))
	f.Add(uint64(0), "x", 0, uint64(0), 0, 0, "", uint64(0), uint64(0), int64(0), false, uint8(0))
	f.Fuzz(func(t *testing.T, nth uint64, name string, lock int, creation uint64, permits, pid int, command string, started, n uint64,
		since int64, flag bool, kind uint8) {
		r := sessionRecord{
			ID: fmt.Sprintf("%032x", n), Nth: nth, State: []sessionState{sessionWaiting, sessionGranted, sessionReleased}[kind%3], Name: name,
			Lock: lock, Creation: creation, Mode: layout.Mode(kind / 3 % 2), Permits: permits, LockPermits: permits, PID: pid,
			Command: layout.TruncateCommand(command), Peer: pid, PeerStarted: started, PeerUID: lock, Witness: flag, Try: !flag, Unconfirmed: flag,
			Deadline: time.Duration(max(since, 0)),
		}
		if since != 0 {
			r.Since = time.Unix(0, since).UTC()
		}
		if r.State != sessionWaiting {
			r.Token = layout.MakeTicket(n%(1<<40)+1, journalHost)
		}
		if r.check(journalHost) != nil {
			return
		}
		var byHand, byJSON [cellSize]byte
		require.NoError(t, sealCell(byHand[:], r.append(byHand[cellText:cellText])))
		require.NoError(t, encodeCell(byJSON[:], r))
		require.Equal(t, string(byJSON[cellText:]), string(byHand[cellText:]))
		require.Equal(t, byJSON, byHand)
		var again sessionRecord
		require.NoError(t, decodeCell(byHand[:], &again))
	})
}
