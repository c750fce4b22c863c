package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// begun is the start time of the work in these tests.
var begun = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestProgressText(t *testing.T) {
	for want, w := range map[string]work{
		"bakeryctl: zeroing 25%, 512 MiB of 2.0 GiB, 256 MiB/s, 6.9 s left": {name: "zeroing", done: 512 << 20, total: 2 << 30, bytes: true},
		"bakeryctl: reading 100%, 2.0 KiB of 2.0 KiB, 1.0 KiB/s":            {name: "reading", done: 2048, total: 2048, bytes: true},
		"bakeryctl: reading 0%, 0 bytes of 1.0 TiB, 0 bytes/s":              {name: "reading", total: 1 << 40, bytes: true},
		"bakeryctl: watching hosts 40%, 3.9 s left":                         {name: "watching hosts", done: 2000, total: 5000},
		"bakeryctl: measuring handover 20%, 8.9 s left":                     {name: "measuring handover", lasts: 10 * time.Second},
		"bakeryctl: measuring handover 100%":                                {name: "measuring handover", lasts: time.Second},
		"bakeryctl: checking with db2, for 2.0 s":                           {name: "checking with db2"},
	} {
		w.begun = begun
		require.Equal(t, want, w.text(begun.Add(2*time.Second), 100))
		for wide := range 30 {
			require.LessOrEqual(t, len(w.text(begun.Add(2*time.Second), wide)), wide)
		}
	}
	require.NotContains(t, work{name: "opening \x1b[2J"}.text(begun, 79), "\x1b")
}

func TestProgress_MessageOrStop_ErasesLine(t *testing.T) {
	var out bytes.Buffer
	never := time.NewTicker(time.Hour) // the test calls draw itself
	p := newProgress(&out, never, begun)
	p.draw(begun)
	require.Empty(t, out.String(), "there is no work yet")
	p.Counter()("zeroing", 1, 2, true)
	p.draw(begun)
	require.True(t, strings.HasPrefix(out.String(), "\r\x1b[Kbakeryctl: zeroing 50%"), "%q", out.String())
	out.Reset()
	p.Message("a message")
	require.Equal(t, "\r\x1b[Ka message\n", out.String())
	out.Reset()
	p.draw(begun)
	out.Reset()
	p.Stop()
	p.Stop()
	require.Equal(t, "\r\x1b[K", out.String())
}

func TestStartProgress_NoTerminal_ShowsNothing(t *testing.T) {
	var out bytes.Buffer
	p := StartProgress(&out)
	require.Same(t, &out, p.Log())
	require.Nil(t, p.Counter(), "format then prints percentages itself, as lines")
	p.Begin("x", time.Second)
	p.Message("a message")
	p.Stop()
	require.Equal(t, "a message\n", out.String())
}
