package handover

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/layout"
)

// cellWith returns a cell with a text, which need not be valid.
func cellWith(text string) []byte {
	cell := make([]byte, cellSize)
	if store(cell, func(to []byte) []byte { return append(to, text...) }) != nil {
		return nil
	}
	return cell
}

func cellOf(t testing.TB, record any) []byte {
	t.Helper()
	text, err := json.Marshal(record)
	require.NoError(t, err)
	return cellWith(string(text))
}

func freeCell() []byte {
	cell := make([]byte, cellSize)
	erase(cell)
	return cell
}

func textOf(cell []byte) string {
	text, _, _ := validText(cell)
	return string(text)
}

func termOf(change func(*Term)) Term {
	term := aTerm()
	change(&term)
	return term
}

func sessionOf(change func(*Session)) Session {
	s := aSession(1)
	change(&s)
	return s
}

func TestDamagedFileIsVoid(t *testing.T) {
	good, session := cellOf(t, termOf(func(*Term) {})), cellOf(t, aSession(1))
	flipped := bytes.Clone(session)
	flipped[sealSize+cellText+100] ^= 1
	free := freeCell()
	almostFree := bytes.Clone(free)
	almostFree[sealSize-1] = 0
	tooLong := freeCell()
	sealOf(tooLong).Store(sealIs | 0xffff<<sealLength)
	term := func(change func(*Term)) [][]byte { return [][]byte{cellOf(t, termOf(change))} }
	with := func(change func(*Session)) [][]byte { return [][]byte{good, free, cellOf(t, sessionOf(change))} }
	edit := func(old, new string) [][]byte {
		return [][]byte{good, cellWith(strings.Replace(textOf(session), old, new, 1))}
	}
	tests := []struct {
		name  string
		cells [][]byte
		want  string
	}{
		{"empty", nil, "0 bytes, want 1 to 65536 cells of 4096 bytes"},
		{"half a cell", [][]byte{good, session[:1024]}, "5120 bytes (5.0 KiB), want"},
		{"trailing garbage", [][]byte{good, []byte("x")}, "4097 bytes (4.0 KiB), want"},
		{"a garbage cell", [][]byte{good, session, bytes.Repeat([]byte("x"), cellSize)}, "cell 2: checksum does not match"},
		{"a flipped bit", [][]byte{good, flipped}, "cell 1: checksum does not match"},
		{"not quite free", [][]byte{good, almostFree}, "cell 1: checksum does not match"},
		{"no term", [][]byte{free, session}, "cell 0: unexpected end"},
		{"a session for a term", [][]byte{session}, "cell 0: object is not as bakeryd writes it"},
		{"a term for a session", [][]byte{good, good}, "cell 1: object is not as bakeryd writes it"},
		{"zeroes", [][]byte{good, make([]byte, cellSize)}, "cell 1: checksum does not match"},
		{"a longer text than there is room for", [][]byte{good, tooLong}, "cell 1: checksum does not match"},
		{"not JSON", [][]byte{good, cellWith("{")}, "cell 1: unexpected end"},
		{"two objects", [][]byte{good, cellWith(textOf(session) + "{}")}, "cell 1: invalid character"},
		{"something behind zeroes", [][]byte{good, cellWith(textOf(session) + "\x00 ")}, "cell 1: invalid character"},
		{"an unknown member", edit(`{`, `{"colour":"red",`), "cell 1: object is not as bakeryd writes it"},
		{"a member twice", edit(`{`, `{"nth":1,`), "cell 1: object is not as bakeryd writes it"},
		{"a member spelled otherwise", edit(`"nth"`, `"NTH"`), "cell 1: object is not as bakeryd writes it"},
		{"spaces", edit(`{`, `{ `), "cell 1: object is not as bakeryd writes it"},
		{"a name that is not UTF-8", edit("ä", "\xff"), "cell 1: object is not as bakeryd writes it"},
		{"a number out of range", edit(`"nth":1`, `"nth":-1`), "cell 1: json"},
		{"a bad mode", edit(`"shared"`, `"sharp"`), `cell 1: mode "sharp"`},
		{"a bad token", edit(`"token":"`, `"token":"-`), "cell 1: ticket"},

		{"another format", term(func(r *Term) { r.Format = 3 }), "cell 0: format 3, want 2"},
		{"another lockspace", term(func(r *Term) { r.UUID[0]++ }), "cell 0: of lockspace 02020300-"},
		{"no lockspace", term(func(r *Term) { r.UUID = layout.UUID{} }), "cell 0: no uuid"},
		{"another boot", term(func(r *Term) { r.Boot[0]++ }), "cell 0: of boot "},
		{"no boot", term(func(r *Term) { r.Boot = BootText{} }), "cell 0: no boot id"},
		{"another host", term(func(r *Term) { r.HostID = 8 }), "cell 0: of host id 8, want 7"},
		{"no host", term(func(r *Term) { r.HostID = 0 }), "cell 0: host id 0, want 1 to 2000"},
		{"read horizon", term(func(r *Term) { r.ReadHorizon = 2001 }), "cell 0: read horizon 2001, want 0 to 2000"},
		{"no incarnation", term(func(r *Term) { r.Incarnation = 0 }), "cell 0: incarnation 0"},
		{"a lease from the future", term(func(r *Term) { r.T0 = 1 << 62 }), "cell 0: lease since 1281023h"},
		{"a lease from before the boot", term(func(r *Term) { r.T0 = -1 }), "cell 0: lease since -1ns"},

		{"a session twice", [][]byte{good, session, free, session}, "cell 3: session 00000000000000000000000000000001 is in cell 1 as well"},
		{"no id", with(func(r *Session) { r.ID = "" }), `cell 2: session "": want 32 lower-case`},
		{"a path for an id", with(func(r *Session) { r.ID = "../../../../../../../etc/passwd/" }), "cell 2: session"},
		{"an id in upper case", with(func(r *Session) { r.ID = strings.Repeat("A", 32) }), "cell 2: session"},
		{"a bad state", with(func(r *Session) { r.State = "asleep" }), `cell 2: state "asleep"`},
		{"no name", with(func(r *Session) { r.Name = "" }), "cell 2: lock name of 0 bytes"},
		{"a bad name", with(func(r *Session) { r.Name = "a\nb" }), "cell 2: lock name"},
		{"no lock", with(func(r *Session) { r.Lock = 0 }), "cell 2: granted lock 0"},
		{"a lock too many", with(func(r *Session) { r.Lock = layout.MaxLocks + 1 }), "cell 2: lock 65537"},
		{"no token", with(func(r *Session) { r.Token = 0 }), "cell 2: granted lock 3 with token 0"},
		{"a token before the grant", with(func(r *Session) { r.State = Waiting }), "cell 2: waiting with token"},
		{"another host's token", with(func(r *Session) { r.Token = layout.MakeTicket(9, 8) }), "of host 8, want 7"},
		{"too many permits", with(func(r *Session) { r.Permits = 2001 }), "cell 2: permits 2001"},
		{"a negative pid", with(func(r *Session) { r.PID = -1 }), "cell 2: pid -1"},
		{"a negative peer", with(func(r *Session) { r.Peer = -1 }), "cell 2: peer -1"},
		{"a long command", with(func(r *Session) { r.Command = strings.Repeat("x", 81) }), "cell 2: command"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := Path(t.TempDir(), fileUUID, fileHost)
			require.NoError(t, os.WriteFile(path, slices.Concat(test.cells...), 0o600))
			term, sessions, err := readFile(path)
			require.ErrorContains(t, err, "read handover file "+path+": ")
			require.ErrorContains(t, err, test.want)
			require.Zero(t, term)
			require.Empty(t, sessions)
		})
	}
}

func TestFileIsAFileOfOurOwn(t *testing.T) {
	good := cellOf(t, termOf(func(*Term) {}))
	tests := []struct {
		name string
		put  func(path string) error
		want string
	}{
		{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory"},
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
		{"larger than any handover file", func(path string) error {
			if err := os.WriteFile(path, good, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, MaxCells*cellSize+cellSize)
		}, "want 1 to 65536 cells"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := Path(t.TempDir(), fileUUID, fileHost)
			require.NoError(t, test.put(path))
			_, _, err := readFile(path)
			require.ErrorContains(t, err, "read handover file "+path)
			require.ErrorContains(t, err, test.want)
		})
	}
	t.Run("of another user", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("only root gives a file away")
		}
		path := Path(t.TempDir(), fileUUID, fileHost)
		require.NoError(t, os.WriteFile(path, good, 0o600))
		require.NoError(t, os.Chown(path, 1, 1))
		_, _, err := readFile(path)
		require.ErrorContains(t, err, "a file of user 1, want 0")
	})
}

func FuzzReadFile(f *testing.F) {
	good, session := cellOf(f, termOf(func(*Term) {})), cellOf(f, aSession(1))
	want := Term{UUID: fileUUID, Boot: hostid.BootID(), HostID: fileHost}
	f.Add(textOf(good), textOf(session), []byte(nil), false)
	f.Add(textOf(good), "", slices.Concat(freeCell(), session), false)
	f.Add(textOf(good), `{"id":"x"}`, []byte("garbage"), false)
	f.Add("{}", textOf(session), freeCell(), false)
	f.Add(strings.Replace(textOf(good), `"format":2`, `"format":1`, 1), textOf(session), make([]byte, oldCellSize), true)
	// Two cells have valid checksums: otherwise no input passes the checksums.
	f.Fuzz(func(t *testing.T, term, session string, rest []byte, old bool) {
		cellWith, textOf, size := cellWith, validText, cellSize
		if old {
			cellWith, textOf, size = oldCell, oldText, oldCellSize
		}
		if len(term) > oldCellSize-oldTextAt || len(session) > oldCellSize-oldTextAt {
			return
		}
		file := slices.Concat(cellWith(term), cellWith(session), rest)
		c, err := decodeFile(bytes.NewReader(file), int64(len(file)), want, 1<<40)
		if err != nil {
			return
		}
		// Encoding the decoded file returns the same texts.
		again, err := json.Marshal(c.term)
		require.NoError(t, err)
		require.Equal(t, term, string(again))
		for _, s := range c.sessions {
			text, _, err := textOf(file[c.cells[s.ID]*size:][:size])
			require.NoError(t, err)
			require.Equal(t, string(s.append(nil)), string(text))
		}
		require.Equal(t, len(file)/size, 1+len(c.sessions)+len(c.free))
	})
}
