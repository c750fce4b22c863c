//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// serverless returns the path of a file that does not exist yet. At the end it removes what
// bakeryctl lock --device wrote about it into root's directories.
func serverless(t *testing.T) string {
	dir, err := os.MkdirTemp(base, "create")
	require.NoError(t, err)
	path := filepath.Join(dir, "new.img")
	system := []string{"/run/bakery", "/var/lib/bakery"}
	missing := map[string]bool{}
	for _, d := range system {
		_, err := os.Stat(d)
		missing[d] = os.IsNotExist(err)
	}
	t.Cleanup(func() {
		out, err := output(plain.bakeryctl, "dump", path, "--json")
		if err == nil {
			first, _, _ := strings.Cut(out, "\n")
			var d dumped
			require.NoError(t, json.Unmarshal([]byte(first), &d))
			for _, dir := range system {
				files, err := filepath.Glob(filepath.Join(dir, d.Record.UUID.String()+"*"))
				require.NoError(t, err)
				for _, f := range files {
					require.NoError(t, os.Remove(f))
				}
				if missing[dir] {
					_ = os.Remove(dir) // fails if the directory is not empty
				}
			}
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return path
}

// TestCreateAtOnce: processes that create one lockspace at the same time agree on one, and run
// their commands one at a time. Later processes reuse the ids of the first ones.
func TestCreateAtOnce(t *testing.T) {
	path := serverless(t)
	n := filepath.Join(filepath.Dir(path), "n")
	require.NoError(t, os.WriteFile(n, []byte("0\n"), 0o600))
	script := `n=$(cat ` + n + `); sleep 0.005; echo $((n + 1)) >` + n + `; echo $BAKERY_TOKEN >>` + n + `.tokens`
	ran := 0
	run := func(count int) {
		t.Helper()
		began := time.Now()
		ran += count
		var all []*process
		for range count {
			all = append(all, launch(t, filepath.Dir(path), plain.bakeryctl, "lock", "--device", path, "--create", "x", "--", "sh", "-c", script))
		}
		for _, p := range all {
			p.exits(0)
			for line := range strings.Lines(p.said()) {
				require.Contains(t, line, "joining takes longer, waiting") // on a slow disk
			}
		}
		t.Logf("%d at once took %v", count, time.Since(began).Round(time.Millisecond))
	}
	run(10)
	spaces := map[layout.UUID]bool{}
	out := must(t, plain.bakeryctl, "dump", path, "--json")
	for line := range strings.Lines(out) {
		var d dumped
		require.NoError(t, json.Unmarshal([]byte(line), &d))
		require.Empty(t, d.Error)
		switch d.Kind {
		case "superblock", "copy":
			spaces[d.Record.UUID] = true
		case "host":
			require.Equal(t, layout.StateLeft, d.Record.State)
		}
	}
	require.Len(t, spaces, 1)
	run(1)
	run(3)
	count, err := os.ReadFile(n)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintln(ran), string(count))
	tokens, err := os.ReadFile(n + ".tokens")
	require.NoError(t, err)
	requireGrowing(t, strings.Fields(string(tokens)))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, e := range entries {
		ok := e.Name() == "new.img" || strings.HasPrefix(e.Name(), "n") || strings.HasPrefix(e.Name(), "bakeryctl.stderr")
		require.True(t, ok, "left behind: %s", e.Name())
	}
}
