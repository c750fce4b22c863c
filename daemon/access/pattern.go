package access

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bakeryd/bakeryd/layout"
)

// A pattern is matched against a whole name, character by character as encoded. Case matters, and
// so does the encoding of an accent. * is any number of any characters, including /, and ? is any
// one character. \ makes the next character literal; there must be one.

// pattern is a valid pattern for path.Match, after withoutSlash.
type pattern string

// withoutSlash replaces /, which * and ? of path.Match do not match, by a character that no name
// and no pattern has.
func withoutSlash(text string) string { return strings.ReplaceAll(text, "/", "\x00") }

const special = `*?[\#"' `

// parsePattern checks a pattern.
func parsePattern(text string) (pattern, error) {
	least := 0 // minimum of bytes that it matches
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		switch r {
		case '*':
			continue
		case '[':
			return "", errors.New(`there are no sets of characters: write \[ for the character [, ? for any`)
		case '"', '\'':
			return "", fmt.Errorf(`%c does not quote: write \ before a blank, and \%c for the character`, r, r)
		case '\\':
			if r, size = utf8.DecodeRuneInString(rest); rest == "" || !strings.ContainsRune(special, r) {
				return "", errors.New(`\ stands before a blank or one of * ? [ \ # " ' only: write \\ for the character`)
			}
			rest = rest[size:]
		}
		least += size
	}
	if least > layout.MaxLockName {
		return "", fmt.Errorf("no lock has so long a name: want at most %d bytes", layout.MaxLockName)
	}
	return pattern(withoutSlash(text)), nil
}

// matches reports whether one of the patterns matches a name. The time for a pattern is in
// proportion to at most the product of both lengths.
func matches(patterns []pattern, name string) bool {
	name = withoutSlash(name)
	return slices.ContainsFunc(patterns, func(p pattern) bool {
		ok, _ := path.Match(string(p), name)
		return ok
	})
}

// Escape returns the pattern that matches only this name.
func Escape(name string) string {
	var b strings.Builder
	for _, r := range name {
		if strings.ContainsRune(special, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
