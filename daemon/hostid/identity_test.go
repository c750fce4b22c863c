package hostid

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestOwnDir: lock files are not kept in a directory that another user created or may write to.
func TestOwnDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, open, link := filepath.Join(dir, "own"), filepath.Join(dir, "open"), filepath.Join(dir, "link")
	require.NoError(t, os.Mkdir(own, 0o755))
	require.NoError(t, checkOwnDir(own))
	require.NoError(t, os.Mkdir(open, 0o777))
	require.NoError(t, os.Chmod(open, 0o777))
	require.ErrorContains(t, checkOwnDir(open), "is not a directory of user")
	require.NoError(t, os.Symlink(own, link))
	require.ErrorContains(t, checkOwnDir(link), "is not a directory of user")
	require.ErrorContains(t, checkOwnDir(filepath.Join(dir, "none")), "no such file")
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(own, 1, -1))
		require.ErrorContains(t, checkOwnDir(own), "is not a directory of user 0 alone")
	}
}

func TestIdentity_JoinedAsHosts_HadReturnsThem(t *testing.T) {
	t.Parallel()
	id := &Identity{Options: Options{StateDir: t.TempDir()}, UUID: layout.UUID{1}}
	other := &Identity{Options: Options{StateDir: id.StateDir}, UUID: layout.UUID{2}}
	require.Empty(t, id.JoinedHosts())
	other.RecordJoined(7)
	id.RecordJoined(3)
	id.RecordJoined(12)
	id.RecordJoined(3)
	require.ElementsMatch(t, []int{3, 12}, id.JoinedHosts())
}
