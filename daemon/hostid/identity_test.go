package hostid

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestOwnDir: what others could have made before, or may write to, is not where lock files are kept.
func TestOwnDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, open, link := filepath.Join(dir, "own"), filepath.Join(dir, "open"), filepath.Join(dir, "link")
	require.NoError(t, os.Mkdir(own, 0o755))
	require.NoError(t, ownDir(own))
	require.NoError(t, os.Mkdir(open, 0o777))
	require.NoError(t, os.Chmod(open, 0o777))
	require.ErrorContains(t, ownDir(open), "is not a directory of user")
	require.NoError(t, os.Symlink(own, link))
	require.ErrorContains(t, ownDir(link), "is not a directory of user")
	require.ErrorContains(t, ownDir(filepath.Join(dir, "none")), "no such file")
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(own, 1, -1))
		require.ErrorContains(t, ownDir(own), "is not a directory of user 0 alone")
	}
}

func TestIdentity_JoinedAsHosts_HadReturnsThem(t *testing.T) {
	t.Parallel()
	id := &Identity{StateDir: t.TempDir(), UUID: layout.UUID{1}}
	other := &Identity{StateDir: id.StateDir, UUID: layout.UUID{2}}
	require.Empty(t, id.Had())
	other.KeepHad(7)
	id.KeepHad(3)
	id.KeepHad(12)
	id.KeepHad(3)
	require.ElementsMatch(t, []int{3, 12}, id.Had())
}
