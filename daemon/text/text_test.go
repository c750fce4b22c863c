package text

import (
	"encoding/json"
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

func TestHex_IsSixteenDigitsAndNothingElse(t *testing.T) {
	for n, want := range map[Hex]string{0: "0000000000000000", 0xabc: "0000000000000abc", 0x05ecc8dd11c0d831: "05ecc8dd11c0d831", 1<<64 - 1: "ffffffffffffffff"} {
		written, err := json.Marshal(map[string]Hex{"incarnation": n})
		require.NoError(t, err)
		require.Equal(t, `{"incarnation":"`+want+`"}`, string(written))
		var read map[string]Hex
		require.NoError(t, json.Unmarshal(written, &read))
		require.Equal(t, n, read["incarnation"])
	}
	for _, bad := range []string{`""`, `"17"`, `"18364758544493064720"`, `"0x05ecc8dd11c0d831"`, `"5ecc8dd11c0d831"`, `"05ECC8DD11C0D831"`,
		`"+5ecc8dd11c0d831"`, `" 5ecc8dd11c0d831"`, `"05ecc8dd_1c0d831"`, `"05ecc8dd11c0d83g"`, `17`, `{}`} {
		h := Hex(7)
		require.Error(t, json.Unmarshal([]byte(bad), &h), bad)
		require.EqualValues(t, 7, h, bad)
	}
	require.EqualError(t, new(Hex).UnmarshalText([]byte("17")), `"17": want 16 lower-case hexadecimal digits, such as 05ecc8dd11c0d831`)
	require.EqualError(t, new(Hex).UnmarshalText([]byte("9713331C2200CC19")), `"9713331C2200CC19": want 16 lower-case hexadecimal digits, such as 05ecc8dd11c0d831`)
}
