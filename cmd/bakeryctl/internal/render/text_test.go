package render

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"plain text": "plain text", "日本 é": "日本 é", "a\x1b[2Jb": `a\u{1b}[2Jb`, "\u202eflip": `\u{202e}flip`, "\xff\x9b": `\xff\x9b`, "a\nb": "a b",
		"e\u0301": "e\u0301", "\u0301": `\u{301}`, "e\u0301\u0302\u0303": "e\u0301\u0302" + `\u{303}`, "❤\ufe0f": `❤\u{fe0f}`, "\u3164": `\u{3164}`, "\u00a0": `\u{a0}`,
	} {
		require.Equal(t, want, Safe(text), "%q", text)
	}
}
