package sanlock

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// step is a line of calls.py.
type step struct{ name, result string }

// stepsOf returns the steps in text, without comments.
func stepsOf(text string) []step {
	var steps []step
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, result, _ := strings.Cut(line, ": ")
		steps = append(steps, step{name, result})
	}
	return steps
}

// difference is a row of differences.md.
type difference struct{ real, bakeryd, reason string }

// differencesOf returns the rows of the table in differences.md by their step, and what is wrong
// with them.
func differencesOf(text string) (map[string]difference, []string) {
	rows := map[string]difference{}
	var wrong []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 {
			wrong = append(wrong, fmt.Sprintf("a row of differences.md has %d cells instead of 4: %s", len(cells), strings.TrimSpace(line)))
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		if _, twice := rows[cells[0]]; twice || cells[3] == "" {
			wrong = append(wrong, fmt.Sprintf("%s is twice in differences.md, or has no reason", cells[0]))
		}
		rows[cells[0]] = difference{cells[1], cells[2], cells[3]}
	}
	return rows, wrong
}

// compare returns what is wrong with the steps of bakeryd: what is not as in sanlock and not
// listed, and listed differences that do not exist.
func compare(real, bakeryd []step, listed map[string]difference) []string {
	var wrong []string
	results := map[string]string{}
	for _, s := range bakeryd {
		if _, twice := results[s.name]; twice {
			wrong = append(wrong, s.name+": the step is there twice")
		}
		results[s.name] = s.result
	}
	known := map[string]bool{}
	for _, s := range real {
		known[s.name] = true
		result, ran := results[s.name]
		d, isListed := listed[s.name]
		switch {
		case !ran:
			wrong = append(wrong, s.name+": the step did not run against bakeryd")
		case isListed && result == s.result:
			wrong = append(wrong, fmt.Sprintf("%s: is in differences.md, but both are %s", s.name, s.result))
		case isListed && (d.real != s.result || d.bakeryd != result):
			wrong = append(wrong, fmt.Sprintf("%s:\n\tsanlock %s\n\tlisted  %s\n\tbakeryd %s\n\tlisted  %s", s.name, s.result, d.real, result, d.bakeryd))
		case !isListed && result != s.result:
			wrong = append(wrong, fmt.Sprintf("%s:\n\tsanlock %s\n\tbakeryd %s", s.name, s.result, result))
		}
	}
	for _, s := range bakeryd {
		if !known[s.name] {
			wrong = append(wrong, s.name+": the step is not in real.txt")
		}
	}
	for name := range listed {
		if !known[name] {
			wrong = append(wrong, name+": is in differences.md, but not in real.txt")
		}
	}
	return wrong
}

func TestCompare_AnyDeviation_IsReported(t *testing.T) {
	real := stepsOf("# a comment\na: 1\nb: 2\n")
	listed, wrong := differencesOf("| step | sanlock |\n|---|---|\n| `b` | `2` | `3` | it counts differently |\n")
	require.Empty(t, wrong)
	for name, c := range map[string]struct {
		bakeryd string
		wrong   int
	}{
		"as listed":                      {"a: 1\nb: 3\n", 0},
		"not listed":                     {"a: 2\nb: 3\n", 1},
		"listed difference is gone":      {"a: 1\nb: 2\n", 1},
		"another difference than listed": {"a: 1\nb: 4\n", 1},
		"missing step":                   {"a: 1\n", 1},
		"unknown step":                   {"a: 1\nb: 3\nc: 1\n", 1},
		"step twice":                     {"a: 1\na: 1\nb: 3\n", 1},
	} {
		require.Len(t, compare(real, stepsOf(c.bakeryd), listed), c.wrong, name)
	}
	require.Len(t, compare(real[:1], real[:1], listed), 1, "listed, but no step")
	for _, row := range []string{"| `b` | `2` | `3` |\n", "| `b` | `2` | `3` |  |\n"} {
		_, wrong := differencesOf(row)
		require.Len(t, wrong, 1, row)
	}
}

func TestDifferences_EachRow_IsOfAStepOfSanlock(t *testing.T) {
	real, listed := recorded(t)
	results := map[string]string{}
	for _, s := range real {
		require.NotContains(t, results, s.name)
		results[s.name] = s.result
	}
	require.Greater(t, len(results), 300)
	for name, d := range listed {
		require.Equal(t, results[name], d.real, name)
		require.NotEqual(t, d.real, d.bakeryd, name)
	}
}

// recorded returns the steps of sanlock, and the listed differences.
func recorded(t *testing.T) ([]step, map[string]difference) {
	t.Helper()
	real, err := os.ReadFile("real.txt")
	require.NoError(t, err)
	text, err := os.ReadFile("differences.md")
	require.NoError(t, err)
	listed, wrong := differencesOf(string(text))
	require.Empty(t, wrong)
	return stepsOf(string(real)), listed
}
