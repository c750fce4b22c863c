package access

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bakeryd/bakeryd/layout"
)

// A pattern is matched against a whole name, character by character as encoded. Case matters, and
// so does the encoding of an accent. * is any number of any characters, including /, and ? is any
// one character. \ makes the next character literal; there must be one.

// pattern is a parsed pattern, with one rune for each character.
type pattern []rune

// Runes with a special meaning. No character is negative.
const (
	many rune = -1 - iota
	one
)

const special = `*?[\#"' `

// parsePattern parses a pattern.
func parsePattern(text string) (pattern, error) {
	var p pattern
	least := 0 // minimum of bytes that it matches
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		switch r {
		case '*':
			if len(p) == 0 || p[len(p)-1] != many {
				p = append(p, many)
			}
			continue
		case '?':
			p = append(p, one)
			least++
			continue
		case '[':
			return nil, errors.New(`there are no sets of characters: write \[ for the character [, ? for any`)
		case '"', '\'':
			return nil, fmt.Errorf(`%c does not quote: write \ before a blank, and \%c for the character`, r, r)
		case '\\':
			if r, size = utf8.DecodeRuneInString(rest); rest == "" || !strings.ContainsRune(special, r) {
				return nil, errors.New(`\ stands before a blank or one of * ? [ \ # " ' only: write \\ for the character`)
			}
			rest = rest[size:]
		}
		p = append(p, r)
		least += size
	}
	if least > layout.MaxLockName {
		return nil, fmt.Errorf("no lock has so long a name: want at most %d bytes", layout.MaxLockName)
	}
	return p, nil
}

// match takes time in proportion to at most the product of both lengths.
func (p pattern) match(name string) bool {
	star, from := -1, 0 // the last *, and where its rest was tried
	for i, at := 0, 0; ; {
		switch r, size := utf8.DecodeRuneInString(name[at:]); {
		case i < len(p) && p[i] == many:
			star, from = i, at
			i++
		case size == 0 && i == len(p):
			return true
		case size > 0 && i < len(p) && (p[i] == one || p[i] == r):
			i, at = i+1, at+size
		case star < 0 || size == 0:
			return false
		default: // the * matches one more character
			_, size := utf8.DecodeRuneInString(name[from:])
			from += size
			i, at = star+1, from
		}
	}
}

func matches(patterns []pattern, name string) bool {
	for _, p := range patterns {
		if p.match(name) {
			return true
		}
	}
	return false
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
