package line

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestReaderReturnsLines(t *testing.T) {
	long := strings.Repeat("x", 3*firstSize)
	said := "first\n\n" + long + "\nlast\nhalf"
	for name, src := range map[string]io.Reader{
		"at once": strings.NewReader(said[3:]), "byte by byte": iotest.OneByteReader(strings.NewReader(said[3:])),
		"with its end": iotest.DataErrReader(strings.NewReader(said[3:])),
	} {
		r := NewReader(src, []byte(said[:3]), 4*firstSize)
		for _, want := range []string{"first", "", long, "last"} {
			got, err := r.Next()
			require.NoError(t, err, name)
			require.Equal(t, want, string(got), name)
		}
		require.LessOrEqual(t, len(r.buf), 4*firstSize)
		_, err := r.Next()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
	}
	_, err := NewReader(strings.NewReader(""), nil, 10).Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestReaderKeepsNoMemoryForALineThatIsOver(t *testing.T) {
	r := NewReader(io.MultiReader(strings.NewReader(strings.Repeat("x", 8*firstSize)+"\n"), strings.NewReader("next\n")), nil, 16*firstSize)
	_, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.NoError(t, err)
	require.Len(t, r.buf, firstSize)
}

// TestReaderIsBounded: the sender does not control how much memory is used.
func TestReaderIsBounded(t *testing.T) {
	const limit = 5 * firstSize
	for _, length := range []int{limit - 1, limit, limit + 1, 100 * limit} {
		r := NewReader(iotest.HalfReader(strings.NewReader(strings.Repeat("x", length)+"\n")), nil, limit)
		line, err := r.Next()
		if length < limit {
			require.NoError(t, err)
			require.Len(t, line, length)
			continue
		}
		require.ErrorIs(t, err, ErrTooLong, length)
		require.LessOrEqual(t, len(r.buf), limit)
	}
}

func TestReaderTellsTheErrorOfItsSource(t *testing.T) {
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(strings.NewReader("x\ny"), iotest.ErrReader(broken)), nil, 10)
	_, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorIs(t, err, broken)
	require.Equal(t, "y", string(r.Rest()))
}

func TestMembers(t *testing.T) {
	for object, plain := range map[string]bool{
		`{"a":1}`: true, `{"a":"","b":-12,"c":true,"d":false}`: true, `{"a":"x","a":"y"}`: true, `{"a":999999999999999999}`: true,
		``: false, `{}`: false, `{"a":1}x`: false, `{"a":1`: false, `{"a":1,}`: false, `{"a" :1}`: false, ` {"a":1}`: false,
		`{"a":1.0}`: false, `{"a":1e3}`: false, `{"a":01}`: false, `{"a":-}`: false, `{"a":1000000000000000000}`: false,
		`{"a":null}`: false, `{"a":{}}`: false, `{"a":[1]}`: false, `{"a":tru}`: false, `{"a":truer}`: false, `{"a":"\n"}`: false,
		"{\"a\":\"\n\"}": false, `{"a":"ä"}`: false, `{"a":"x}`: false, `{a:1}`: false, `[1]`: false, `{"a":}`: false, `{"a"}`: false,
		`{"a":1"b":2}`: false, `{,"a":1}`: false, `"a"`: false, `{"a`: false,
	} {
		got := Members([]byte(object), func(name, value []byte) bool { return true })
		require.Equal(t, plain, got, object)
	}
	require.False(t, Members([]byte(`{"a":1,"b":2}`), func(name, value []byte) bool { return string(name) != "b" }))
}

func TestInt(t *testing.T) {
	var i int64
	var u int
	require.True(t, Int([]byte("-5"), &i))
	require.EqualValues(t, -5, i)
	require.True(t, Int([]byte("0"), &u))
	for _, no := range []string{`"5"`, "true", "5x"} {
		require.False(t, Int([]byte(no), &i), no)
	}
}

// FuzzMembers checks that a plain object has the meaning that encoding/json gives it.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":"x","c":true}`, `{"a":-0}`, `{"a":"x","a":false}`, `{"a":000}`, `{"a":"` + "\x7f" + `"}`, `{"":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		got := map[string]any{}
		ok := Members(object, func(name, value []byte) bool {
			var s string
			var n int64
			var b bool
			switch {
			case Text(value, &s):
				got[string(name)] = s
			case Int(value, &n):
				got[string(name)] = json.Number(string(value))
			case Bool(value, &b):
				got[string(name)] = b
			default:
				t.Errorf("value %q is of no kind", value)
			}
			return true
		})
		if !ok {
			return
		}
		var want map[string]any
		dec := json.NewDecoder(bytes.NewReader(object))
		dec.UseNumber()
		require.NoError(t, dec.Decode(&want), "%q", object)
		require.False(t, dec.More())
		require.Equal(t, want, got, "%q", object)
	})
}

// FuzzAppendString checks that the output is that of encoding/json.
func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "plain text", `a"b\c`, "<a&b>", "ä\x00\n\x7f", "\xff\xfe", "\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		require.NoError(t, err)
		require.Equal(t, "x"+string(want), string(AppendString([]byte("x"), s)))
	})
}
