package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// The help topics list all exit codes and variables of the source.
func TestTopics(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help", "exit-codes"}, {"exit-codes"}, {"exit-codes", "--help"}} {
		code, out, errs := ctl(t, "/nonesuch", args...)
		require.Equal(t, cli.ExitOK, code)
		require.Empty(t, errs)
		require.Contains(t, out, "\n  75     the lock was lost")
	}

	source, err := filepath.Glob("*.go")
	require.NoError(t, err)
	below, err := filepath.Glob("internal/*/*.go")
	require.NoError(t, err)
	_, codes, _ := ctl(t, "/nonesuch", "help", "exit-codes")
	_, variables, _ := ctl(t, "/nonesuch", "help", "environment")
	found := 0
	for _, file := range append(source, below...) {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "topics.go" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^\tExit[A-Z]\w* += (\d+)\b`).FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, `(?m)^  `+m[1]+`(\+N)?  `, codes, "%s: %s", file, m[0])
			found++
		}
		for _, name := range regexp.MustCompile(`\bBAKERY_[A-Z_]*[A-Z]\b`).FindAllString(string(text), -1) {
			require.Regexp(t, `(?m)^  `+name+` `, variables, file)
			found++
		}
		for _, m := range regexp.MustCompile(`(?:[eE]nv)\("([A-Z_]+)"\)`).FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, `(?m)^  (?:[A-Z_]+, )*`+m[1]+`[ ,]`, variables, file)
			found++
		}
	}
	require.Greater(t, found, 20, "most variables were not found")
}
