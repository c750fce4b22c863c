// Package test checks that test/README.md describes the tiers of test/all correctly.
package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fullOnly returns what test/steps only runs with --full: names of steps and of tests. For
// ./test/vm it returns the pattern of the scenarios in the default tier.
func fullOnly(t *testing.T) (names map[string]bool, vm *regexp.Regexp) {
	text, err := os.ReadFile("steps")
	require.NoError(t, err)
	variable := func(name string) string {
		var value strings.Builder
		for _, m := range regexp.MustCompile(`(?m)^`+name+`\+?='(.*)'$`).FindAllSubmatch(text, -1) {
			value.Write(m[1])
		}
		require.NotEmpty(t, value.String(), name)
		return value.String()
	}
	names = map[string]bool{}
	for _, name := range strings.Split(variable("long_tests"), "|") {
		names[name] = true
	}
	out, err := exec.Command("./steps", "--table").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		require.Len(t, f, 5, line)
		names[f[0]] = f[4] == "all"
	}
	return names, regexp.MustCompile("^(" + variable("vm_tests") + ")$")
}

// definedIn returns the directory of each test.
func definedIn(t *testing.T) map[string][]string {
	dirs := map[string][]string{}
	files, err := exec.Command("git", "-C", "..", "ls-files", "*_test.go").Output()
	require.NoError(t, err)
	definition := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(filepath.Join("..", file))
		if os.IsNotExist(err) {
			continue // removed, but not committed
		}
		require.NoError(t, err)
		for _, m := range definition.FindAllSubmatch(text, -1) {
			dirs[string(m[1])] = append(dirs[string(m[1])], filepath.Dir(file))
		}
	}
	return dirs
}

func TestReadme_Promises_NameWhatTiersRun(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	only, vm := fullOnly(t)
	dirs := definedIn(t)
	_, table, found := strings.Cut(string(text), "| promise ")
	require.True(t, found)
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 6 {
			break
		}
		if rows++; rows <= 2 {
			continue // the header
		}
		kept := make([]int, len(cells)) // names of the default tier
		for i, cell := range cells[1:] {
			for name := range strings.SplitSeq(cell, ",") {
				if name = strings.TrimSpace(name); name == "" {
					continue
				}
				plain := strings.Trim(name, "()")
				left, known := only[plain]
				where := dirs[plain]
				require.True(t, known || len(where) > 0, "%s: no step and no test %s", cells[0], plain)
				switch column := i + 1; {
				case known:
				case column == 3:
					require.True(t, slices.ContainsFunc(where, func(dir string) bool { return !strings.HasPrefix(dir, "test/") }), plain)
				case column == 4:
					require.Contains(t, where, "test/integration", plain)
				case column == 5:
					require.Contains(t, where, "test/vm", plain)
					left = !vm.MatchString(plain)
				default:
					require.Fail(t, "no step", plain)
				}
				require.Equal(t, left, plain != name, "%s: parentheses of %s", cells[0], plain)
				if !left {
					kept[i+1]++
				}
			}
		}
		require.Positive(t, kept[1]+kept[2]+kept[3], "%s has no simulated disk in the default tier", cells[0])
		require.Positive(t, kept[4]+kept[5], "%s has no real processes in the default tier", cells[0])
	}
	require.Greater(t, rows, 10)
}
