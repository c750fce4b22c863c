package sanlock

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// TestConformance_ListsEachCommand: with what the server does, and tests that exist.
func TestConformance_ListsEachCommand(t *testing.T) {
	text, err := os.ReadFile("CONFORMANCE.md")
	require.NoError(t, err)
	goTests := contents(t, ".", "_test.go")
	steps := contents(t, filepath.Join("..", "..", "test", "sanlock"), ".py")
	rows, commandsListed := 0, wire.Command(0)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || strings.Contains(line, "tested by") {
			continue
		}
		rows++
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if number, err := strconv.Atoi(cells[0]); err == nil {
			commandsListed++
			cmd := wire.Command(number)
			require.Equal(t, commandsListed, cmd, "in order")
			require.Equal(t, cmd.String(), cells[1])
			_, served := commands[cmd]
			require.Equal(t, served, cells[2] != "refused", "%v", cmd)
		}
		tests := cells[len(cells)-1]
		named := regexp.MustCompile(`Test\w+`).FindAllString(tests, -1)
		require.NotEmpty(t, named, line)
		for _, name := range named {
			require.Contains(t, goTests, "func "+name+"(", "%s", cells[1])
		}
		for _, step := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(tests, -1) {
			require.True(t, regexp.MustCompile(`step\("`+step[1]+`[".]`).MatchString(steps), "%s: %s", cells[1], step[1])
		}
	}
	require.Equal(t, wire.RebuildRindex, commandsListed, "the last one")
	require.Greater(t, rows, int(commandsListed))
}

// contents returns the files below a directory with a suffix.
func contents(t *testing.T, dir, suffix string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, suffix) {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	}))
	return all.String()
}
