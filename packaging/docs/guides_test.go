package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// TestChangelog_CurrentVersion_HasASection, and the file is short enough to be read.
func TestChangelog_CurrentVersion_HasASection(t *testing.T) {
	text := read(t, "CHANGELOG.md")
	require.Contains(t, text, "\n## Unreleased\n")
	require.Regexp(t, `\n## `+regexp.QuoteMeta(strings.TrimSpace(read(t, "../VERSION")))+` - \d{4}-\d\d-\d\d\n`, text)
	require.LessOrEqual(t, strings.Count(text, "\n"), 120)
}

// TestSizing_DiskSizes_AreThoseOfTheFormat: each row of the table has the size that format needs.
func TestSizing_DiskSizes_AreThoseOfTheFormat(t *testing.T) {
	size := func(hosts, locks string, stride int) string {
		var g layout.Geometry
		var err error
		g.Stride = stride
		g.Hosts, err = strconv.Atoi(hosts)
		require.NoError(t, err)
		g.Locks, err = strconv.Atoi(locks)
		require.NoError(t, err)
		bytes, unit := float64(g.Size())/1024, "KiB"
		for _, next := range []string{"MiB", "GiB"} {
			if bytes >= 1024 {
				bytes, unit = bytes/1024, next
			}
		}
		return fmt.Sprintf("%.1f %s", bytes, unit)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+)(?: \(default\))? \| (\d+)(?: \(default\))? \| (.*) \| (.*) \|$`).FindAllStringSubmatch(read(t, "sizing.md"), -1)
	require.NotEmpty(t, rows)
	for _, r := range rows {
		require.Equal(t, []string{size(r[1], r[2], 512), size(r[1], r[2], 4096)}, r[3:], r[0])
	}
}

// TestSecurity_NamedTests_Exist: each claim is checked by the tests that security.md names.
func TestSecurity_NamedTests_Exist(t *testing.T) {
	exist := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, root := range []string{"../../bakery", "../../blockdev", "../../cmd", "../../daemon", "../../layout", "../../test"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
					exist[m[1]] = true
				}
			}
			return err
		}))
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(read(t, "security.md"), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		require.True(t, exist[name], "security.md names %s", name)
	}
}

// TestGlossary_StatesThatCommandsPrint_AreExplained: those of hosts, slots, modes, policies and disks.
func TestGlossary_StatesThatCommandsPrint_AreExplained(t *testing.T) {
	words := []string{layout.Exclusive.String(), layout.Shared.String(), layout.Idle.String(), layout.Choosing.String(),
		layout.Waiting.String(), layout.Held.String(), string(report.HealthLive), string(report.HealthJoining),
		string(report.HealthLeft), string(report.HealthSilent), string(report.HealthDead), string(events.Orphan),
		string(events.Remains), string(events.Resumed), string(events.Seen), string(events.Wanted), string(events.Lost),
		"lingering", "stuck", "weak"}
	glossary := read(t, "glossary.md")
	for _, word := range words {
		require.Contains(t, glossary, "**"+word+"**")
	}
}
