package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/layout"
)

var journalUUID = layout.UUID{1, 2, 3}

const journalHost = 7

func aTerm() termRecord {
	return termRecord{UUID: journalUUID, Boot: bootID(), HostID: journalHost, Incarnation: 0xfedcba9876543210, T0: 12345, Ready: true}
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
	term, sessions, err := readJournal(j.path)
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

	next, term, sessions, err := resumeJournal(filepath.Dir(j.path), journalUUID, journalHost)
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
		_, sessions, err := readJournal(path)
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
	_, _, err = readJournal(j.path)
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
		_, _, err := readJournal(j.path)
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

// seal makes a cell of a text, with its checksum.
func seal(text string) []byte {
	cell := make([]byte, cellSize)
	copy(cell[cellText:], text)
	binary.LittleEndian.PutUint32(cell, crc32.Checksum(cell[cellText:], crc32.MakeTable(crc32.Castagnoli)))
	return cell
}

func cellOf(t testing.TB, record any) []byte {
	t.Helper()
	cell := make([]byte, cellSize)
	require.NoError(t, encodeCell(cell, record))
	return cell
}

func text(cell []byte) string { return string(bytes.TrimRight(cell[cellText:], "\x00")) }

func termOf(change func(*termRecord)) termCell {
	term := aTerm()
	change(&term)
	return termCell{Format: journalFormat, termRecord: term}
}

func sessionOf(change func(*sessionRecord)) sessionRecord {
	s := aSession(1)
	change(&s)
	return s
}

func TestDamagedJournalIsVoid(t *testing.T) {
	good, session := cellOf(t, termOf(func(*termRecord) {})), cellOf(t, aSession(1))
	flipped := bytes.Clone(session)
	flipped[1000] ^= 1
	free := make([]byte, cellSize)
	almostFree := bytes.Clone(free)
	almostFree[cellSize-1] = 1
	term := func(change func(*termRecord)) [][]byte { return [][]byte{cellOf(t, termOf(change))} }
	with := func(change func(*sessionRecord)) [][]byte { return [][]byte{good, free, cellOf(t, sessionOf(change))} }
	edit := func(old, new string) [][]byte {
		return [][]byte{good, seal(strings.Replace(text(session), old, new, 1))}
	}
	tests := []struct {
		name  string
		cells [][]byte
		want  string
	}{
		{"empty", nil, "0 bytes, want 1 to 65536 cells of 2048 bytes"},
		{"half a cell", [][]byte{good, session[:1024]}, "3072 bytes (3.0 KiB), want"},
		{"trailing garbage", [][]byte{good, []byte("x")}, "2049 bytes (2.0 KiB), want"},
		{"a garbage cell", [][]byte{good, session, bytes.Repeat([]byte("x"), cellSize)}, "cell 2: checksum does not match"},
		{"a flipped bit", [][]byte{good, flipped}, "cell 1: checksum does not match"},
		{"not quite free", [][]byte{good, almostFree}, "cell 1: checksum does not match"},
		{"no term", [][]byte{free, session}, "cell 0: checksum does not match"},
		{"a session for a term", [][]byte{session}, "cell 0: object is not as bakeryd writes it"},
		{"a term for a session", [][]byte{good, good}, "cell 1: object is not as bakeryd writes it"},
		{"no object", [][]byte{good, seal("")}, "cell 1: unexpected end"},
		{"not JSON", [][]byte{good, seal("{")}, "cell 1: unexpected end"},
		{"two objects", [][]byte{good, seal(text(session) + "{}")}, "cell 1: invalid character"},
		{"something behind zeroes", [][]byte{good, seal(text(session) + "\x00 ")}, "cell 1: invalid character"},
		{"an unknown member", edit(`{`, `{"colour":"red",`), "cell 1: object is not as bakeryd writes it"},
		{"a member twice", edit(`{`, `{"nth":1,`), "cell 1: object is not as bakeryd writes it"},
		{"a member spelled otherwise", edit(`"nth"`, `"NTH"`), "cell 1: object is not as bakeryd writes it"},
		{"spaces", edit(`{`, `{ `), "cell 1: object is not as bakeryd writes it"},
		{"a name that is not UTF-8", edit("ä", "\xff"), "cell 1: object is not as bakeryd writes it"},
		{"a number out of range", edit(`"nth":1`, `"nth":-1`), "cell 1: json"},
		{"a bad mode", edit(`"shared"`, `"sharp"`), `cell 1: mode "sharp"`},
		{"a bad token", edit(`"token":"`, `"token":"-`), "cell 1: ticket"},

		{"another format", [][]byte{cellOf(t, termCell{Format: 2, termRecord: aTerm()})}, "cell 0: format 2, want 1"},
		{"another lockspace", term(func(r *termRecord) { r.UUID[0]++ }), "cell 0: of lockspace 02020300-"},
		{"no lockspace", term(func(r *termRecord) { r.UUID = layout.UUID{} }), "cell 0: no uuid"},
		{"another boot", term(func(r *termRecord) { r.Boot[0]++ }), "cell 0: of boot "},
		{"no boot", term(func(r *termRecord) { r.Boot = bootText{} }), "cell 0: no boot id"},
		{"another host", term(func(r *termRecord) { r.HostID = 8 }), "cell 0: of host id 8, want 7"},
		{"no host", term(func(r *termRecord) { r.HostID = 0 }), "cell 0: host id 0, want 1 to 2000"},
		{"no incarnation", term(func(r *termRecord) { r.Incarnation = 0 }), "cell 0: incarnation 0"},
		{"a lease from the future", term(func(r *termRecord) { r.T0 = 1 << 62 }), "cell 0: lease since 1281023h"},
		{"a lease from before the boot", term(func(r *termRecord) { r.T0 = -1 }), "cell 0: lease since -1ns"},

		{"a session twice", [][]byte{good, session, free, session}, "cell 3: session 00000000000000000000000000000001 is in cell 1 as well"},
		{"no id", with(func(r *sessionRecord) { r.ID = "" }), `cell 2: session "": want 32 lower-case`},
		{"a path for an id", with(func(r *sessionRecord) { r.ID = "../../../../../../../etc/passwd/" }), "cell 2: session"},
		{"an id in upper case", with(func(r *sessionRecord) { r.ID = strings.Repeat("A", 32) }), "cell 2: session"},
		{"a bad state", with(func(r *sessionRecord) { r.State = "asleep" }), `cell 2: state "asleep"`},
		{"no name", with(func(r *sessionRecord) { r.Name = "" }), "cell 2: lock name of 0 bytes"},
		{"a bad name", with(func(r *sessionRecord) { r.Name = "a\nb" }), "cell 2: lock name"},
		{"no lock", with(func(r *sessionRecord) { r.Lock = 0 }), "cell 2: granted lock 0"},
		{"a lock too many", with(func(r *sessionRecord) { r.Lock = layout.MaxLocks + 1 }), "cell 2: lock 65537"},
		{"no token", with(func(r *sessionRecord) { r.Token = 0 }), "cell 2: granted lock 3 with token 0"},
		{"a token before the grant", with(func(r *sessionRecord) { r.State = sessionWaiting }), "cell 2: waiting with token"},
		{"another host's token", with(func(r *sessionRecord) { r.Token = layout.MakeTicket(9, 8) }), "of host 8, want 7"},
		{"too many permits", with(func(r *sessionRecord) { r.Permits = 2001 }), "cell 2: permits 2001"},
		{"a negative pid", with(func(r *sessionRecord) { r.PID = -1 }), "cell 2: pid -1"},
		{"a negative peer", with(func(r *sessionRecord) { r.Peer = -1 }), "cell 2: peer -1"},
		{"a long command", with(func(r *sessionRecord) { r.Command = strings.Repeat("x", 81) }), "cell 2: command"},
		{"a negative deadline", with(func(r *sessionRecord) { r.Deadline = -1 }), "cell 2: deadline -1ns"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := journalPath(t.TempDir(), journalUUID, journalHost)
			require.NoError(t, os.WriteFile(path, slices.Concat(test.cells...), 0o600))
			term, sessions, err := readJournal(path)
			require.ErrorContains(t, err, "read journal "+path+": ")
			require.ErrorContains(t, err, test.want)
			require.Zero(t, term)
			require.Empty(t, sessions)
			_, _, _, err = resumeJournal(filepath.Dir(path), journalUUID, journalHost)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestJournalIsAFileOfOurOwn(t *testing.T) {
	good := cellOf(t, termOf(func(*termRecord) {}))
	tests := []struct {
		name string
		put  func(path string) error
		want string
	}{
		{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }, "a file of type d"},
		{"a FIFO", func(path string) error { return unix.Mkfifo(path, 0o600) }, "a file of type p"},
		{"a link", func(path string) error {
			if err := os.WriteFile(path+".x", good, 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".x", path)
		}, "too many levels of symbolic links"},
		{"for others to write", func(path string) error {
			if err := os.WriteFile(path, good, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o622)
		}, "a file of mode 0622, want 0600"},
		{"larger than any journal", func(path string) error {
			if err := os.WriteFile(path, good, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, journalCells*cellSize+cellSize)
		}, "want 1 to 65536 cells"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := journalPath(t.TempDir(), journalUUID, journalHost)
			require.NoError(t, test.put(path))
			_, _, err := readJournal(path)
			require.ErrorContains(t, err, "read journal "+path)
			require.ErrorContains(t, err, test.want)
		})
	}
	t.Run("of another user", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("only root gives a file away")
		}
		path := journalPath(t.TempDir(), journalUUID, journalHost)
		require.NoError(t, os.WriteFile(path, good, 0o600))
		require.NoError(t, os.Chown(path, 1, 1))
		_, _, err := readJournal(path)
		require.ErrorContains(t, err, "a file of user 1, want 0")
	})
	_, _, err := readJournal("/nowhere/x.state")
	require.ErrorContains(t, err, "name is not UUID-ID.state")
}

func FuzzReadJournal(f *testing.F) {
	good, session := cellOf(f, termOf(func(*termRecord) {})), cellOf(f, aSession(1))
	free := make([]byte, cellSize)
	want := journalOf{uuid: journalUUID, boot: bootID(), host: journalHost}
	f.Add(text(good), text(session), []byte(nil))
	f.Add(text(good), "", slices.Concat(free, session))
	f.Add(text(good), `{"id":"x"}`, []byte("garbage"))
	f.Add("{}", text(session), free)
	// The checksums of two cells are right: else nothing comes further than them.
	f.Fuzz(func(t *testing.T, term, session string, rest []byte) {
		if len(term) > cellSize-cellText || len(session) > cellSize-cellText {
			return
		}
		file := slices.Concat(seal(term), seal(session), rest)
		c, err := decodeJournal(bytes.NewReader(file), int64(len(file)), want, 1<<40)
		if err != nil {
			return
		}
		// To decode and to encode is the identity.
		again := make([]byte, len(file))
		require.NoError(t, encodeCell(again[:cellSize], termCell{Format: journalFormat, termRecord: c.term}))
		for _, s := range c.sessions {
			cell := c.cells[s.ID]
			require.NoError(t, encodeCell(again[cell*cellSize:][:cellSize], s))
		}
		require.Equal(t, file, again)
		require.Equal(t, len(file)/cellSize, 1+len(c.sessions)+len(c.free))
	})
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
