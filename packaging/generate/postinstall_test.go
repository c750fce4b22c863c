package generate

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// postinstall runs the script with another directory in place of /etc/bakery, whose files root owns for stat(1).
func postinstall(t *testing.T, etc string, args ...string) {
	t.Helper()
	script, err := os.ReadFile("../scripts/postinstall")
	require.NoError(t, err)
	programs := t.TempDir()
	for name, text := range map[string]string{
		"getent": "exit 0", "dpkg-statoverride": "exit 1", "groupadd": "exit 1",
		"stat": `PATH=/usr/bin:/bin; echo "$(stat -c %a "$3"):0:0"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	text := strings.NewReplacer("/etc/bakery", etc, "/run/systemd/system", etc+"/none").Replace(string(script))
	cmd := exec.Command("sh", append([]string{"-c", text, "postinstall"}, args...)...)
	cmd.Env = []string{"PATH=" + programs + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The first upgrade from a package that installed the settings with mode 0644 changes that. A mode that an
// administrator sets afterwards stays.
func TestPostinstall_LaterUpgrade_KeepsTheMode(t *testing.T) {
	for _, args := range [][]string{{"configure", "0.1.0"}, {"2"}} { // of dpkg, and of rpm
		etc := t.TempDir()
		settings := filepath.Join(etc, "bakeryd.env")
		mode := func() fs.FileMode {
			info, err := os.Stat(settings)
			require.NoError(t, err)
			return info.Mode().Perm()
		}
		postinstall(t, etc, args...) // there are no settings
		require.NoError(t, os.WriteFile(settings, nil, 0o644))
		require.NoError(t, os.Chmod(settings, 0o644))
		postinstall(t, etc, args...)
		require.Equal(t, fs.FileMode(0o640), mode(), "%q", args)
		require.NoError(t, os.Chmod(settings, 0o644))
		postinstall(t, etc, args...)
		require.Equal(t, fs.FileMode(0o644), mode(), "%q", args)
	}
}
