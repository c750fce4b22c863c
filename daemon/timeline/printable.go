package timeline

import (
	"strconv"
	"strings"
)

// printable escapes characters that are invisible, or that change the display of other text.
func printable(text string) string {
	odd := func(r rune) bool { return !strconv.IsPrint(r) || r == '\uFFFD' }
	if !strings.ContainsFunc(text, odd) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if odd(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
