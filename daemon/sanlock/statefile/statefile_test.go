package statefile

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWriter_Save_ReplacesAndRemoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var text atomic.Pointer[string]
	ended := make(chan struct{})
	w := New(func() (string, []byte) {
		if s := text.Load(); s != nil {
			return path, []byte(*s)
		}
		return path, nil
	}, ended, slog.New(slog.DiscardHandler))
	require.NoError(t, w.Save(), "there is nothing to remove")
	for _, s := range []string{"one", "another"} {
		text.Store(&s)
		require.NoError(t, w.Save())
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, s, string(got))
	}
	text.Store(nil)
	require.NoError(t, w.Save())
	require.NoFileExists(t, path)
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, files)
	close(ended)
	require.ErrorIs(t, w.Save(), ErrEnded)
}

// TestWriter_Save_HasAllChangesBefore: each caller finds its change in the file.
func TestWriter_Save_HasAllChangesBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var n atomic.Int64
	ended := make(chan struct{})
	defer close(ended)
	w := New(func() (string, []byte) { return path, make([]byte, n.Load()) }, ended, slog.New(slog.DiscardHandler))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				mine := n.Add(1)
				if err := w.Save(); err != nil {
					t.Error(err)
				}
				if info, err := os.Stat(path); err != nil || info.Size() < mine {
					t.Errorf("the file has %v, %v; want at least %d bytes", info, err, mine)
				}
			}
		})
	}
	wg.Wait()
}

// TestWriter_ThatFails_TriesAgain: without another call.
func TestWriter_ThatFails_TriesAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	path := filepath.Join(dir, "state")
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		w := New(func() (string, []byte) { return path, []byte("text") }, ended, slog.New(slog.DiscardHandler))
		require.ErrorIs(t, w.Save(), os.ErrNotExist)
		require.NoError(t, os.Mkdir(dir, 0o700))
		synctest.Wait()
		time.Sleep(2 * again)
		synctest.Wait()
		require.FileExists(t, path)
		close(ended)
	})
}
