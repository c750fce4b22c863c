package text

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	for message, want := range map[string]string{
		"db/backup-1": "db/backup-1",
		"größe":       "größe",
		"":            `""`,
		"two words":   `"two words"`,
		`a"b`:         `"a\"b"`,
		`a\b`:         `"a\\b"`,
		"a\u202eb":    `"a\u202eb"`,
		"a\u200bb":    `"a\u200bb"`,
		"a\u00a0b":    `"a\u00a0b"`,
		"a\x1b[1m":    `"a\x1b[1m"`,
		"a\xffb":      `"a\xffb"`,
	} {
		require.Equal(t, want, Printable(message))
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[Bytes]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1024 bytes (1.0 KiB)", 1<<20 - 1: "1048575 bytes (1.0 MiB)",
		68689920: "68689920 bytes (65.5 MiB)", 3 << 50: "3377699720527872 bytes (3072.0 TiB)",
	} {
		require.Equal(t, want, n.String())
	}
}

func TestShorten_CutsAfterAWord(t *testing.T) {
	for message, want := range map[string]string{
		"the lease":             "the lease",
		"the lease ran":         "the lease ran",
		"the lease ran out":     "the lease ...",
		"the leases run":        "the ...",
		"unabbreviated":         "unabbreviated",
		"unabbreviatedword":     "unabbrevi ...",
		"größeößeößeöße":        "größeö ...",
		"the lease \xffran out": "the lease ...",
	} {
		got := Shorten(message, 13)
		require.Equal(t, want, got)
		require.LessOrEqual(t, len(got), 13)
	}
}
