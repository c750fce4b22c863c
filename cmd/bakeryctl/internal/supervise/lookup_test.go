package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

func TestFindCommand(t *testing.T) {
	top := t.TempDir()
	for path, mode := range map[string]os.FileMode{
		"a/plain": 0o644, "a/both": 0o644, "b/both": 0o755, "b/tool": 0o755, "here": 0o755, "b/dir/x": 0o755,
	} {
		full := filepath.Join(top, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, nil, mode))
	}
	t.Chdir(top)
	both := top + "/a:" + top + "/b"
	tests := []struct {
		path, name, want string
		code             int
	}{
		{both, "tool", top + "/b/tool", 0},
		{both, "both", top + "/b/both", 0}, // a file that is not executable is skipped
		{both, "plain", "", cli.ExitNotExec},
		{both, "dir", "", cli.ExitNotExec},
		{both, "none", "", cli.ExitNotFound},
		{both, "", "", cli.ExitNotFound},
		{both, "here", "", cli.ExitNotFound},
		{both + ":", "here", "./here", 0},
		{"/dev/null:" + both, "none", "", cli.ExitNotFound},
		{"", "tool", "", cli.ExitNotFound},
		{"", "b/tool", "b/tool", 0},
		{"", "./a/plain", "", cli.ExitNotExec},
		{"", "./b/dir", "", cli.ExitNotExec},
		{"", "./none", "", cli.ExitNotFound},
	}
	for _, test := range tests {
		t.Setenv("PATH", test.path)
		got, err := FindCommand(test.name)
		code := 0
		var f *cli.Failure
		if errors.As(err, &f) {
			code = f.Code
		}
		if code != test.code || err == nil && got != test.want {
			t.Errorf("PATH %q, %q: %q, %v; want %q, code %d", test.path, test.name, got, err, test.want, test.code)
		}
	}
	require.NoError(t, os.Unsetenv("PATH"))
	if got, err := FindCommand("sh"); err != nil || got != "/bin/sh" {
		t.Errorf("without PATH: %q, %v", got, err)
	}
}
