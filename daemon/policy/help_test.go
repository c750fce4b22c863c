package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// strangerID is a user without any rights here.
const strangerID = 54321

// writePolicy creates a policy file that only its owner can write to.
func writePolicy(t *testing.T, policy string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "policy")
	require.NoError(t, os.WriteFile(path, []byte(policy), 0o644))
	require.NoError(t, os.Chmod(path, 0o644))
	return path
}
