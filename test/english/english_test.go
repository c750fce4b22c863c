// Package english checks the prose of the repository against a table of phrases to avoid.
package english

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// finding is one match of a rule.
type finding struct {
	line   int
	reason string
}

// questionEnd matches up to the end of a sentence that is a question.
var questionEnd = regexp.MustCompile(`^(?:[^.?!\n]|[.!]\S|\n[^\n])*\?`)

// check returns the findings in text, a comment if comment is set, that begins at line.
func check(text string, line int, comment bool) (found []finding) {
	text = strings.NewReplacer(`\n`, "  ", `\t`, "  ").Replace(text)
	for _, r := range rules {
		if r.comments && !comment {
			continue
		}
		for _, m := range r.pattern.FindAllStringIndex(text, -1) {
			start := text[strings.LastIndexByte(text[:m[0]], '\n')+1 : m[0]]
			if r.clause && (strings.HasPrefix(start, "#") && !comment || questionEnd.MatchString(text[m[0]:])) {
				continue
			}
			found = append(found, finding{line + strings.Count(text[:m[0]], "\n"), fmt.Sprintf("%q: %s", text[m[0]:m[1]], r.advice)})
		}
	}
	return found
}

// checkGo returns the findings in the comments and string literals of a Go file. Comments on
// consecutive lines are one text.
func checkGo(source []byte) (found []finding) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, source, nil, scanner.ScanComments)
	var comment string
	first, last := 0, 0 // the lines of comment
	for {
		pos, tok, lit := s.Scan()
		line := file.Line(pos)
		if comment != "" && (tok != token.COMMENT || line != last+1) {
			found = append(found, check(comment, first, true)...)
			comment = ""
		}
		switch tok {
		case token.COMMENT:
			if comment == "" {
				first = line
			} else {
				comment += "\n"
			}
			comment += strings.TrimPrefix(lit, "//")
			last = line + strings.Count(lit, "\n")
		case token.STRING:
			found = append(found, check(lit, line, false)...)
		case token.EOF:
			return found
		}
	}
}

var (
	suffixes = []string{".sh", ".service", ".timer", ".yaml", ".toml", ".html", ".js", ".css", ".py", ".txtar", ".pml", ".md"}
	skipped  = []string{"go.sum", "package-lock.json", "LICENSE", "english_test.go", "rules_test.go"}
)

// checkFile returns the findings in the file at path, nil if the file is not prose.
func checkFile(path string) ([]finding, error) {
	text, err := os.ReadFile(path)
	if err != nil || slices.Contains(skipped, filepath.Base(path)) || bytes.IndexByte(text, 0) >= 0 {
		return nil, err
	}
	ext := filepath.Ext(path)
	switch {
	case ext == ".go":
		return checkGo(text), nil
	case slices.Contains(suffixes, ext), ext == "" && bytes.HasPrefix(text, []byte("#!")):
		return check(string(text), 1, false), nil
	}
	return nil, nil
}

// files returns the paths of the files of the repository: those that git tracks, or all without git.
func files(t *testing.T) (paths []string) {
	os.Stat(".git/index") // go test runs the test again when the index has changed
	if out, err := exec.Command("git", "ls-files", "-z", "--deduplicate").Output(); err == nil && len(out) > 0 {
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && slices.Contains([]string{".git", "node_modules", "out", "bin"}, d.Name()) {
			return filepath.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

func TestEnglish(t *testing.T) {
	t.Chdir("../..")
	for _, path := range files(t) {
		found, err := checkFile(path)
		if os.IsNotExist(err) { // deleted, not committed
			continue
		}
		require.NoError(t, err)
		for _, f := range found {
			t.Errorf("%s:%d: %s", path, f.line, f.reason)
		}
	}
}

func TestRules(t *testing.T) {
	for _, r := range rules {
		for _, text := range r.bad {
			require.NotEmpty(t, check(text, 1, true), text)
		}
		for _, text := range r.good {
			require.Empty(t, check(text, 1, true), text)
		}
	}
	source := "package p\n\n// F is\n// mended: \"x\"\nfunc F() { g(\"one\\nanew\") }\n\nvar who = `\nyet to`\n\n// he\n"
	require.Equal(t, []int{4, 5, 8, 10}, func() (lines []int) {
		for _, f := range checkGo([]byte(source)) {
			lines = append(lines, f.line)
		}
		return lines
	}())
}
