package hostid

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestReleaseLockFiles_AtOnce_LeaveTheFileOfAnotherProcess: a host that is closed twice releases its
// lock files twice, and between the two another process may have taken its id.
func TestReleaseLockFiles_AtOnce_LeaveTheFileOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	process := func() *Identity {
		id, err := New(Options{Name: "a", RuntimeDir: dir, StateDir: dir}, layout.UUID{1})
		require.NoError(t, err)
		return id
	}
	for range 1000 {
		old, next := process(), process()
		require.NoError(t, old.TakeLockFile(1))
		var both sync.WaitGroup
		for range 2 {
			both.Go(old.ReleaseLockFiles)
		}
		for next.TakeLockFile(1) != nil {
		}
		both.Wait()
		files, err := filepath.Glob(filepath.Join(dir, "*-1.lock"))
		require.NoError(t, err)
		require.Len(t, files, 1, "a third process could take the id")
		next.ReleaseLockFiles()
		_ = os.Remove(files[0])
	}
}
