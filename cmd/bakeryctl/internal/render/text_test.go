package render

import (
	"bytes"
	"fmt"
	"io"
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

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		text string
		wide int
		want string
	}{
		{"/dev/mapper/locks", 17, "/dev/mapper/locks"},
		{"/dev/mapper/locks", 16, "/dev/ma…er/locks"},
		{"/dev/mapper/locks", 5, "/d…ks"},
		{"/dev/mapper/locks", 1, "…"},
		{"日本日本日本", 9, "日本…日本"},
		{"日本日本日本", 8, "日…日本"},
	} {
		got := Fine.Middle(c.text, c.wide)
		require.Equal(t, c.want, got)
		require.LessOrEqual(t, Width(got), c.wide)
	}
	require.Equal(t, "/dev/ma~er/locks", Simple.Middle("/dev/mapper/locks", 16))
}

// Wide characters count as two columns, and colours as none.
func TestWriteTable_WidthOfCells(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, WriteTable(&out, func(w io.Writer) {
		fmt.Fprint(w, Paint(true).Of(Head, "NAME\tSTATE\tX"), "\n日本\t", Paint(true).Of(Bad, "dead"), "\tx\nabc\tlive\n\nalone\n")
	}))
	require.Equal(t, "\x1b[1mNAME  STATE  X\x1b[0m\n日本  \x1b[31mdead\x1b[0m   x\nabc   live\n\nalone\n", out.String())
}
