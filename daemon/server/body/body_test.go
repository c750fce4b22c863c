package body

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/text"
)

type named struct {
	Name string `json:"name"`
}

type removal struct {
	named
	TimeoutMS int64   `json:"timeout_ms"`
	IfNoValue bool    `json:"if_no_value"`
	Value     *[]byte `json:"value"`

	Incarnation text.Hex `json:"incarnation"`
	Tags        []string `json:"tags"`
	Inner       *named   `json:"inner"`
}

func TestDecode_UnknownMembers_AreIgnoredAndNamed(t *testing.T) {
	for text, unknown := range map[string][]string{
		`{}`:                                nil,
		`{"name":"x","timeout_ms":5}`:       nil,
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

// TestDecode_ConditionThatIsNull_IsRefused: encoding/json takes null for no condition.
func TestDecode_ConditionThatIsNull_IsRefused(t *testing.T) {
	for text, message := range map[string]string{
		`{"name":"x","if_no_value":null}`:    `invalid request: member "if_no_value" is null, want true or false`,
		`{"name":"x","if_no_value": null }`:  `invalid request: member "if_no_value" is null, want true or false`,
		`{"name":"x","if_no_value":0}`:       `invalid request: member "if_no_value": want true or false, found number`,
		`{"name":"x","if_no_value":"false"}`: `invalid request: member "if_no_value": want true or false, found string`,
		`{"name":"x","if_unused":null}`:      `invalid request: the request has the condition "if_unused", which this bakeryd does not know`,
	} {
		var r removal
		_, err := Decode([]byte(text), &r)
		require.ErrorIs(t, err, api.ErrInvalid, text)
		require.EqualError(t, err, message, text)
	}
	var r removal
	unknown, err := Decode([]byte(`{"name":null,"value":null,"if_no_value":true}`), &r)
	require.NoError(t, err)
	require.Empty(t, unknown)
	require.Equal(t, removal{IfNoValue: true}, r)
}

// TestDecode_NameInAnotherCase_IsRefused: encoding/json takes it for the known name, and a client that
// spells it so has been tested with no bakeryd.
func TestDecode_NameInAnotherCase_IsRefused(t *testing.T) {
	for name, want := range map[string]string{"If_no_value": "if_no_value", "IF_NO_VALUE": "if_no_value", "Name": "name", "NAME": "name", "timeout_Ms": "timeout_ms",
		`timeout_m\u017f`: "timeout_ms"} { // a long s
		for _, value := range []string{"true", "null", `"x"`} {
			var r removal
			_, err := Decode(fmt.Appendf(nil, `{"%s":%s}`, name, value), &r)
			require.ErrorIs(t, err, api.ErrInvalid)
			require.EqualError(t, err, fmt.Sprintf(`invalid request: member "%s" is misspelt, want %q`, name, want))
			require.Zero(t, r)
		}
	}
}

func TestDecode_BadBody_IsRefused(t *testing.T) {
	many := `{"name":"x"`
	for i := range maxUnknown + 1 {
		many += fmt.Sprintf(`,"m%d":0`, i)
	}
	for text, message := range map[string]string{
		``:                          "body is empty, want a JSON object",
		" \n":                       "body is empty, want a JSON object",
		`not json`:                  "body is not JSON: invalid character",
		`null`:                      "body is not a JSON object",
		`[]`:                        "body is not a JSON object",
		`{"name":"x"} {}`:           "body has more than one JSON value",
		`{"name":"x"}}`:             "body has more than one JSON value",
		`{"name":"x"`:               "body is not JSON: unexpected EOF",
		`{"name":"x",}`:             "body is not JSON: invalid character",
		`{"name":5}`:                `member "name": want a string, found number`,
		`{"name":5,"colour":1}`:     `member "name": want a string, found number`,
		`{"name":["x"]}`:            `member "name": want a string, found array`,
		`{"timeout_ms":"5"}`:        `member "timeout_ms": want a whole number of at most 64 bits, found string`,
		`{"timeout_ms":2.5}`:        `member "timeout_ms": want a whole number of at most 64 bits, found number 2.5`,
		`{"timeout_ms":1e30}`:       `member "timeout_ms": want a whole number of at most 64 bits, found number 1e30`,
		`{"value":"%"}`:             `member "value": want base64`,
		`{"value":5}`:               `member "value": want a string of base64, found number`,
		`{"incarnation":5}`:         `member "incarnation": want a string, found number`,
		`{"incarnation":"5"}`:       `member "incarnation": "5": want 16 `,
		`{"name":"x","tags":{}}`:    `member "tags": want an array, found object`,
		`{"name":"x","tags":[5]}`:   `member "tags": want a string, found number`,
		`{"name":"x","inner":true}`: `member "inner": want an object, found bool`,
		`{"name":"x","name":"y"}`:   `member "name" is given twice`,
		`{"name":"x","Name":"y"}`:   `member "Name" is given twice`,
		`{"colour":1,"colour":2}`:   `member "colour" is given twice`,
		"{\"a\x01\":1}":             "body is not JSON: invalid character",
		many + `}`:                  "more than 64 members that this bakeryd does not know",
		many + `,"if_unused":true}`: "more than 64 members",
	} {
		var r removal
		_, err := Decode([]byte(text), &r)
		require.ErrorIs(t, err, api.ErrInvalid, text)
		require.ErrorContains(t, err, "invalid request: "+message, text)
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
		`{"ı":1,"ſ":2}`, `[`, `{"a":{"if_x":1}}`, `{"if_no_value":null}`, `{"If_no_value":true}`} {
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
			require.NotContains(t, names(&r), name)
			delete(all, name)
		}
		require.Len(t, ignored, len(unknown))
		for name, value := range all {
			require.Contains(t, names(&r), name)
			require.False(t, isCondition(name) && string(value) == "null", "a condition that is null")
		}
		warning := Warning(unknown)
		require.LessOrEqual(t, len(warning), 2500)
		require.False(t, strings.ContainsFunc(warning, func(r rune) bool { return unicode.IsControl(r) || r > '~' }))
	})
}
