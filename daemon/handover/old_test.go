package handover

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/clock"
)

// oldCell returns a cell of the previous format.
func oldCell(text string) []byte {
	cell := make([]byte, oldCellSize)
	copy(cell[oldTextAt:], text)
	binary.LittleEndian.PutUint32(cell, crc32.Checksum(cell[oldTextAt:], crc32.MakeTable(crc32.Castagnoli)))
	return cell
}

// oldFile has a term, a session that holds a lock, a free cell, and one that waits. It was written by
// the last bakeryd with that format, apart from the boot id and the checksum over it.
func oldFile() []byte {
	boot, _ := aTerm().Boot.MarshalText()
	return slicesOf(
		oldCell(fmt.Sprintf(`{"format":1,"uuid":"01020300-0000-0000-0000-000000000000","boot":"%s","host_id":7,"incarnation":18364758544493064720,"t0_ns":12345,"ready":true}`, boot)),
		oldCell(`{"id":"00000000000000000000000000000001","nth":1,"state":"granted","name":"db/ä \u003c1\u003e","lock":3,"creation":4,"mode":"shared","permits":2,"pid":99,"command":"sh -c 'x \u0026\u0026 y'","peer":98,"peer_started":97,"token":"524289794","since":"2001-09-09T01:46:40.000000005Z","witness":true}`),
		make([]byte, oldCellSize),
		oldCell(`{"id":"abababababababababababababababab","nth":0,"state":"waiting","name":"x","mode":"exclusive"}`))
}

func slicesOf(cells ...[]byte) (file []byte) {
	for _, c := range cells {
		file = append(file, c...)
	}
	return file
}

// TestResume_FileOfThePreviousFormat_IsReplaced: an upgrade keeps the locks.
func TestResume_FileOfThePreviousFormat_IsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := Path(dir, fileUUID, fileHost)
	require.NoError(t, os.WriteFile(path, oldFile(), 0o600))
	waiting := Session{ID: strings.Repeat("ab", 16), State: Waiting, Name: "x"}
	for range 2 {
		j, term, sessions, err := Resume(dir, fileUUID, fileHost, clock.Boottime.Now())
		require.NoError(t, err)
		require.Equal(t, aTerm(), term)
		require.Equal(t, []Session{aSession(1), waiting}, sessions)
		require.True(t, j.Intact())
		j.Close()
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{path}, files)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.EqualValues(t, chunk*cellSize, info.Size())
}

// TestResume_DamagedFileOfThePreviousFormat_IsVoid: it is read as strictly as the present one.
func TestResume_DamagedFileOfThePreviousFormat_IsVoid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(file []byte) []byte
		want   string
	}{
		"a bit":       {func(f []byte) []byte { f[oldCellSize+100] ^= 1; return f }, "cell 1: checksum does not match"},
		"not free":    {func(f []byte) []byte { f[3*oldCellSize-1] = 1; return f }, "cell 2: checksum does not match"},
		"half a cell": {func(f []byte) []byte { return f[:len(f)-1024] }, "want 1 to 65536 cells of 2048 bytes"},
		"its boot": {func(f []byte) []byte {
			return slicesOf(oldCell(strings.Replace(string(oldTextOf(f)), `"boot":"`, `"boot":"0`, 1)))
		}, "cell 0: want 32"},
		"its last cell": {func(f []byte) []byte { return append(f, oldCell(`{}`)...) }, "cell 4: object is not as bakeryd writes it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := Path(dir, fileUUID, fileHost)
			require.NoError(t, os.WriteFile(path, c.change(oldFile()), 0o600))
			_, _, _, err := Resume(dir, fileUUID, fileHost, time.Hour)
			require.ErrorContains(t, err, "read handover file "+path+": ")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func oldTextOf(file []byte) []byte {
	text, _, _ := oldText(file[:oldCellSize])
	return text
}

// TestResume_PreviousFormatAndNoRoom_KeepsTheFile: the file stays as it is.
func TestResume_PreviousFormatAndNoRoom_KeepsTheFile(t *testing.T) {
	dir := t.TempDir()
	path := Path(dir, fileUUID, fileHost)
	require.NoError(t, os.WriteFile(path, oldFile(), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(path+".new", "x"), 0o700)) // cannot be removed
	_, _, _, err := Resume(dir, fileUUID, fileHost, time.Hour)
	require.ErrorContains(t, err, "read handover file "+path+": ")
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, oldFile(), file)
}
