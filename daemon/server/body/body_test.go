package body

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
)

type named struct {
	Name string `json:"name"`
}

type removal struct {
	named
	TimeoutMS int64   `json:"timeout_ms"`
	IfNoValue bool    `json:"if_no_value"`
	Value     *[]byte `json:"value"`
}

func TestDecode_UnknownMembers_AreIgnoredAndNamed(t *testing.T) {
	for text, unknown := range map[string][]string{
		`{}`:                                nil,
		`{"name":"x","timeout_ms":5}`:       nil,
		`{"NAME":"x"}`:                      nil,
		`{"name":"x","colour":"red"}`:       {"colour"},
		`{"colour":{"name":3},"name":"x"}`:  {"colour"},
		`{"z":[],"name":"x","a":null,"":1}`: {"z", "a", ""},
		`{"iffy":1,"required":1,"a_if_":1}`: {"iffy", "required", "a_if_"},
	} {
		var r removal
		got, err := Decode([]byte(text), &r)
		require.NoError(t, err, text)
		require.Equal(t, unknown, got, text)
		if strings.Contains(strings.ToLower(text), `"name":"x"`) {
			require.Equal(t, "x", r.Name, text)
		}
	}
}

// TestDecode_UnknownCondition_IsRefused: a newer client sets a condition, without which the call could
// do what the client excludes.
func TestDecode_UnknownCondition_IsRefused(t *testing.T) {
	for _, name := range []string{"if_unused", "require_owner", "IF_unused", "Require_x", "if_", "if_no_valu"} {
		var r removal
		_, err := Decode(fmt.Appendf(nil, `{"name":"x","colour":1,%q:false}`, name), &r)
		require.ErrorIs(t, err, api.ErrInvalid)
		refusal := api.ErrorOf(err)
		require.Equal(t, api.CodeInvalid, refusal.Code)
		require.Equal(t, fmt.Sprintf("invalid request: the request has the condition %q, which this bakeryd does not know", name), refusal.Message)
		require.Equal(t, "update bakeryd on this host; a condition is never ignored", refusal.Hint)
	}
	var r removal
	_, err := Decode([]byte(`{"name":"x","if_no_value":true}`), &r)
	require.NoError(t, err)
	require.True(t, r.IfNoValue)
}

func TestDecode_BadBody_IsRefused(t *testing.T) {
	many := `{"name":"x"`
	for i := range maxUnknown + 1 {
		many += fmt.Sprintf(`,"m%d":0`, i)
	}
	for text, message := range map[string]string{
		``:                          "EOF",
		`not json`:                  "invalid character",
		`null`:                      "want a JSON object",
		`[]`:                        "want a JSON object",
		`{"name":"x"} {}`:           "more than one JSON value",
		`{"name":"x"}}`:             "more than one JSON value",
		`{"name":"x"`:               "EOF",
		`{"name":"x",}`:             "invalid character",
		`{"name":5}`:                "cannot unmarshal number",
		`{"name":5,"colour":1}`:     "cannot unmarshal number",
		`{"timeout_ms":1e30}`:       "timeout_ms",
		`{"value":"%"}`:             "illegal base64",
		`{"name":"x","name":"y"}`:   `member "name" is given twice`,
		`{"name":"x","Name":"y"}`:   `member "Name" is given twice`,
		`{"colour":1,"colour":2}`:   `member "colour" is given twice`,
		"{\"a\x01\":1}":             "invalid character",
		many + `}`:                  "more than 64 members that this bakeryd does not know",
		many + `,"if_unused":true}`: "more than 64 members",
	} {
		var r removal
		_, err := Decode([]byte(text), &r)
		require.ErrorIs(t, err, api.ErrInvalid, text)
		require.ErrorContains(t, err, message, text)
	}
}

func TestWarning_HostileNames_AreShortAndPrintable(t *testing.T) {
	require.Empty(t, Warning(nil))
	require.Equal(t, `this bakeryd does not know, and ignores, the member "colour" of the request: check the spelling, or update bakeryd`, Warning([]string{"colour"}))
	names := []string{"a\"b\\c", "\x1b[2J", "größe\u202e", "\xff", strings.Repeat("x", 10_000), "f", "g", "h", "i", "j"}
	require.Equal(t, `this bakeryd does not know, and ignores, the member "a\"b\\c", "\x1b[2J", "gr\u00f6\u00dfe\u202e", "\xff", "`+strings.Repeat("x", 40)+
		`...", "f", "g", "h" and 2 more of the request: check the spelling, or update bakeryd`, Warning(names))
}

// FuzzDecode: what is accepted has the meaning that encoding/json gives it, no member is passed over
// in silence, and no condition is ignored.
func FuzzDecode(f *testing.F) { // 8000x
	for _, text := range []string{`{"name":"x","timeout_ms":5,"colour":1}`, `{"if_no_value":true,"if_x":1}`, `{"NAME":"x","nam\u0065":"y"}`, `{"value":"AA==","\u212a":null}`,
		`{"ı":1,"ſ":2}`, `[`, `{"a":{"if_x":1}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r, want removal
		unknown, err := Decode(text, &r)
		if err != nil {
			require.ErrorIs(t, err, api.ErrInvalid)
			return
		}
		require.NoError(t, json.Unmarshal(text, &want))
		require.Equal(t, want, r)
		var all map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &all))
		ignored := map[string]bool{}
		for _, name := range unknown {
			ignored[name] = true
			require.False(t, isCondition(name))
			delete(all, name)
		}
		require.Len(t, ignored, len(unknown))
		require.LessOrEqual(t, len(all), 4, "the members that are known: %q", all)
		warning := Warning(unknown)
		require.LessOrEqual(t, len(warning), 2500)
		require.False(t, strings.ContainsFunc(warning, func(r rune) bool { return unicode.IsControl(r) || r > '~' }))
	})
}
