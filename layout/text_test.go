package layout_test

import (
	"encoding"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bakeryd/bakeryd/layout"
)

func TestValidateName(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"a", ""},
		{strings.Repeat("x", 128), ""},
		{strings.Repeat("é", 64), ""},
		{"with space / and \u2028", ""},
		{"", "lock name of 0 bytes, want 1 to 128: value not allowed"},
		{strings.Repeat("x", 129), "lock name of 129 bytes, want 1 to 128: value not allowed"},
		{strings.Repeat("é", 65), "lock name of 130 bytes"},
		{"a\nb", `lock name "a\nb", want no control characters, found U+000A at byte 1: value not allowed`},
		{"a\x00", "U+0000"},
		{"\x7f", "U+007F"},
		{"\u0085", "U+0085"},
		{"a\xff", `lock name "a\xff", want UTF-8: value not allowed`},
		{"\xed\xa0\x80", "want UTF-8"},
	} {
		err := layout.ValidateLockName(c.name)
		if c.want == "" {
			require.NoError(t, err, "%q", c.name)
			continue
		}
		require.ErrorIs(t, err, layout.ErrField, "%q", c.name)
		require.ErrorContains(t, err, c.want)
	}
	require.NoError(t, layout.ValidateLockspaceName(""))
	require.NoError(t, layout.ValidateLockspaceName(strings.Repeat("x", 64)))
	require.EqualError(t, layout.ValidateLockspaceName(strings.Repeat("x", 65)),
		"lockspace name of 65 bytes, want 0 to 64: value not allowed")
	require.NoError(t, layout.ValidateRequest(""))
	require.EqualError(t, layout.ValidateRequest(strings.Repeat("x", 55)),
		"request message of 55 bytes, want 0 to 54: value not allowed")
}

func TestTruncateCommand(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"sleep 1", "sleep 1"},
		{strings.Repeat("x", 80), strings.Repeat("x", 80)},
		{strings.Repeat("x", 81), strings.Repeat("x", 80)},
		{strings.Repeat("x", 79) + "é", strings.Repeat("x", 79)},
		{strings.Repeat("x", 78) + "éé", strings.Repeat("x", 78) + "é"},
		{strings.Repeat("x", 77) + "😀", strings.Repeat("x", 77)},
		{"a\x00b\tc\nd\u0085\x7f", "a?b?c?d??"},
		{"a\xff\xfeb\xc3", "a??b?"},
		{strings.Repeat("\ufffd", 1000), strings.Repeat("?", 80)},
		{strings.Repeat("\u0085", 1000), strings.Repeat("?", 80)},
		{strings.Repeat("世", 1000), strings.Repeat("世", 26)},
	} {
		require.Equal(t, c.want, layout.TruncateCommand(c.in), "%q", c.in)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "text") {
			in = rapid.String().Draw(t, "in")
		}
		out := layout.TruncateCommand(in)
		require.LessOrEqual(t, len(out), 80)
		require.True(t, utf8.ValidString(out))
		require.False(t, strings.ContainsFunc(out, unicode.IsControl))
		require.Equal(t, out, layout.TruncateCommand(out))
		slot := testSlot()
		slot.Holder.Command = out
		require.NoError(t, testSpace.EncodeSlot(make([]byte, 512), slot))
	})
}

func TestEnums_TextForms_RoundTrip(t *testing.T) {
	type named interface {
		String() string
		encoding.TextMarshaler
	}
	for _, c := range []struct {
		kind  string
		names []string
		value func(uint8) named
		parse func(string) (named, error)
	}{
		{"phase", []string{"idle", "choosing", "waiting", "held"},
			func(v uint8) named { return layout.Phase(v) },
			func(s string) (named, error) { var v layout.Phase; err := v.UnmarshalText([]byte(s)); return v, err }},
		{"mode", []string{"exclusive", "shared"},
			func(v uint8) named { return layout.Mode(v) },
			func(s string) (named, error) { var v layout.Mode; err := v.UnmarshalText([]byte(s)); return v, err }},
		{"policy", []string{"lease", "fence", "manual"},
			func(v uint8) named { return layout.Policy(v) },
			func(s string) (named, error) { var v layout.Policy; err := v.UnmarshalText([]byte(s)); return v, err }},
		{"host state", []string{"virgin", "joining", "live", "left"},
			func(v uint8) named { return layout.HostState(v) },
			func(s string) (named, error) {
				var v layout.HostState
				err := v.UnmarshalText([]byte(s))
				return v, err
			}},
		{"verdict", []string{"dead", "wish", "forgotten"},
			func(v uint8) named { return layout.VerdictKind(v) },
			func(s string) (named, error) {
				var v layout.VerdictKind
				err := v.UnmarshalText([]byte(s))
				return v, err
			}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			for i, name := range c.names {
				require.Equal(t, name, c.value(uint8(i)).String())
				text, err := c.value(uint8(i)).MarshalText()
				require.NoError(t, err)
				require.Equal(t, name, string(text))
				found, err := c.parse(name)
				require.NoError(t, err)
				require.Equal(t, c.value(uint8(i)), found)
			}
			beyond := c.value(uint8(len(c.names)))
			require.Regexp(t, `^`+c.kind+`\(\d\)$`, beyond.String())
			_, err := beyond.MarshalText()
			require.ErrorIs(t, err, layout.ErrField)
			for _, text := range []string{"", "Idle", "LEASE", "x", c.names[0] + " "} {
				_, err = c.parse(text)
				require.ErrorIs(t, err, layout.ErrField)
			}
		})
	}
	err := new(layout.Policy).UnmarshalText([]byte("lesae"))
	require.EqualError(t, err, `policy "lesae", want lease or fence or manual: value not allowed`)
}

func TestUUID(t *testing.T) {
	const text = "0e9f3c52-1d84-4b6a-9c37-5a2f81d6e4b0"
	require.Equal(t, text, testUUID.String())
	for _, good := range []string{text, strings.ToUpper(text)} {
		found, err := layout.ParseUUID(good)
		require.NoError(t, err)
		require.Equal(t, testUUID, found)
	}
	for _, bad := range []string{"", "x", text[:35], text + "0", "{" + text + "}", "urn:uuid:" + text,
		strings.ReplaceAll(text, "-", ""), "g" + text[1:]} {
		_, err := layout.ParseUUID(bad)
		require.ErrorIs(t, err, layout.ErrField, bad)
		found := testUUID
		require.Error(t, found.UnmarshalText([]byte(bad)))
		require.Equal(t, testUUID, found)
	}
	require.True(t, layout.UUID{}.IsZero())
	require.False(t, testUUID.IsZero())
	out, err := json.Marshal(testUUID)
	require.NoError(t, err)
	require.Equal(t, `"`+text+`"`, string(out))
	var back layout.UUID
	require.NoError(t, json.Unmarshal(out, &back))
	require.Equal(t, testUUID, back)
}

func TestTicket(t *testing.T) {
	largest := layout.MakeTicket(layout.MaxNumber, layout.MaxHosts)
	require.EqualValues(t, uint64(layout.MaxNumber), largest.Number())
	require.Equal(t, 2000, largest.Host())
	require.Less(t, uint64(largest), uint64(1)<<63)
	require.EqualValues(t, 1<<63-1-47<<8, largest.Grant(255), "2000 is 47 below the largest host that fits")
	require.Equal(t, "1049344", layout.MakeTicket(2, 3).String())
	require.Equal(t, "1049351", layout.MakeTicket(2, 3).Grant(7).String())
	require.Zero(t, layout.Ticket(0).Number()+uint64(layout.Ticket(0).Host()))

	out, err := json.Marshal(map[string]layout.Ticket{"token": layout.MakeTicket(1<<43, 3)})
	require.NoError(t, err)
	require.Equal(t, `{"token":"4611686018427388672"}`, string(out))
	for _, bad := range []string{"", "-1", "x", "1.0", " 1", "9223372036854776064", "18446744073709551616",
		"524288", "524032", "512256", "1", "255"} {
		found := layout.Ticket(1)
		require.ErrorIs(t, found.UnmarshalText([]byte(bad)), layout.ErrField, bad)
		require.EqualValues(t, 1, found)
	}

	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) uint64 { return rapid.Uint64Range(0, layout.MaxNumber).Draw(t, name) }
		host := func(name string) int { return rapid.IntRange(1, layout.MaxHosts).Draw(t, name) }
		n1, h1, n2, h2 := number("n1"), host("h1"), number("n2"), host("h2")
		if rapid.Bool().Draw(t, "same number") {
			n2 = n1
		}
		t1, t2 := layout.MakeTicket(n1, h1), layout.MakeTicket(n2, h2)
		k := rapid.IntRange(0, layout.MaxGrants-1).Draw(t, "k")
		token := t1.Grant(k)
		require.Equal(t, n1, token.Number())
		require.Equal(t, h1, token.Host())
		require.Equal(t, t1 < t2, token < t2, "below the next larger ticket")
		require.Equal(t, h1, t1.Host())
		require.Equal(t, n1 < n2 || n1 == n2 && h1 < h2, t1 < t2, "lexicographic")
		text, err := token.MarshalText()
		require.NoError(t, err)
		var back layout.Ticket
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, token, back)
	})
}
