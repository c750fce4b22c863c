package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWarnOfSettings_FenceCommandIsReadable_NamesTheFile: and no other file.
func TestWarnOfSettings_FenceCommandIsReadable_NamesTheFile(t *testing.T) {
	dir := t.TempDir()
	for name, of := range map[string]struct {
		mode os.FileMode
		text string
	}{
		"open.env":     {0o644, "BAKERYD_DEVICE=x\nBAKERYD_FENCE_EXEC='fence_ipmilan --password=secret'\n"},
		"exported.env": {0o604, " export BAKERYD_FENCE_EXEC=x"},
		"group.env":    {0o640, "BAKERYD_FENCE_EXEC=x\n"},
		"comment.env":  {0o644, "#BAKERYD_FENCE_EXEC=\n# see BAKERYD_FENCE_EXEC=\n"},
		"other.env":    {0o644, "BAKERYD_FENCE=pr\n"},
		"policy":       {0o644, "BAKERYD_FENCE_EXEC=x\n"},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(of.text), 0o600))
		require.NoError(t, os.Chmod(path, of.mode))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir.env"), 0o755))
	var log bytes.Buffer
	warnOfSettings(dir, slog.New(slog.NewTextHandler(&log, nil)))
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	for _, name := range []string{"open.env", "exported.env"} {
		require.Contains(t, log.String(), `remedy="chmod 0640 `+filepath.Join(dir, name))
	}
	require.NotContains(t, log.String(), "secret")
}
