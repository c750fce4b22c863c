package line

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

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
		_, err := r.Next()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
	}
	_, err := NewReader(strings.NewReader(""), nil, 10).Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestReaderKeepsNoMemoryForALineThatIsOver(t *testing.T) {
	r := NewReader(io.MultiReader(strings.NewReader(strings.Repeat("x", 8*firstSize)+"\n"), strings.NewReader("next\n")), nil, 16*firstSize)
	for _, want := range []int{8 * firstSize, len("next")} {
		line, err := r.Next()
		require.NoError(t, err)
		require.Len(t, line, want)
		require.Equal(t, firstSize, r.in.Size())
	}
}

// TestReaderIsBounded: the sender does not control how much memory is used.
func TestReaderIsBounded(t *testing.T) {
	const limit = 5 * firstSize
	for _, length := range []int{limit - 1, limit, limit + 1, 100 * limit} {
		sent := strings.NewReader(strings.Repeat("x", length) + "\n")
		line, err := NewReader(iotest.HalfReader(sent), nil, limit).Next()
		if length < limit {
			require.NoError(t, err)
			require.Len(t, line, length)
			continue
		}
		require.ErrorIs(t, err, ErrTooLong, length)
		require.GreaterOrEqual(t, sent.Len(), length-limit-firstSize, "it reads no more than it must")
	}
}

func TestReader_Rest_ReturnsWhatWasRead(t *testing.T) {
	for _, head := range []string{"", "x\ny\n", strings.Repeat("x", 2*firstSize) + "\ny\n"} {
		r := NewReader(strings.NewReader("x\ny\n"), []byte(head), 4*firstSize)
		_, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, "y\n", string(r.Rest()))
	}
}

func TestReaderTellsTheErrorOfItsSource(t *testing.T) {
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(strings.NewReader("x\ny"), iotest.ErrReader(broken)), nil, 10)
	_, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorIs(t, err, broken)
}

// members has a member of each type.
type members struct {
	A int    `json:"a,omitzero"`
	B string `json:"b,omitzero"`
	C bool   `json:"c,omitzero"`
	D uint64 `json:"d,omitzero"`
	E word   `json:"e,omitzero"`
}

// word is a type with a text.
type word struct{ text string }

func (w word) String() string { return w.text }

func (w word) MarshalText() ([]byte, error) { return []byte(w.text), nil }

func (w *word) UnmarshalText(text []byte) error {
	if bytes.HasPrefix(text, []byte("no")) {
		return errors.New("no word")
	}
	w.text = string(text)
	return nil
}

func (m *members) list(o *Object) {
	Number(o, `"a":`, &m.A, false)
	o.Text(`"b":`, &m.B)
	o.Flag(`"c":`, &m.C)
	Number(o, `"d":`, &m.D, false)
	Quoted(o, `"e":`, &m.E, false)
}

func (m *members) read(text []byte) bool {
	o := Read(text)
	m.list(&o)
	return o.Done()
}

func TestObject_Read_ReadsPlainObjectsOnly(t *testing.T) {
	for object, plain := range map[string]bool{
		`{"a":1}`: true, `{"a":-12,"b":"","c":true}`: true, `{"c":false}`: true, `{"b":"x","b":"y"}`: false, `{"a":999999999999999999}`: true,
		`{"a":0}`: true, `{"b":"x","e":"y"}`: true, `{"d":5}`: true, `{"d":-5}`: false, `{"e":"no"}`: false, `{"b":"x","a":1}`: false, `{"x":1}`: false,
		``: false, `{}`: false, `{"a":1}x`: false, `{"a":1`: false, `{"a":1,}`: false, `{"a" :1}`: false, ` {"a":1}`: false,
		`{"a":1.0}`: false, `{"a":1e3}`: false, `{"a":01}`: false, `{"a":-}`: false, `{"a":1000000000000000000}`: false,
		`{"a":null}`: false, `{"b":{}}`: false, `{"b":[1]}`: false, `{"c":tru}`: false, `{"c":truer}`: false, `{"c":,"d":1}`: false, `{"b":"\n"}`: false,
		"{\"b\":\"\n\"}": false, `{"b":"ä"}`: false, `{"b":"x}`: false, `{a:1}`: false, `[1]`: false, `{"a":}`: false, `{"a"}`: false,
		`{"a":1"b":"2"}`: false, `{,"a":1}`: false, `"a"`: false, `{"a`: false, `{"a":1}"b":"x"}`: false, `{"a":"5"}`: false, `{"b":5}`: false,
		`{"a":`: false, `{"b":"`: false,
	} {
		require.Equal(t, plain, new(members).read([]byte(object)), object)
	}
}

func TestObject_Write_LeavesZeroMembersOut(t *testing.T) {
	for want, m := range map[string]members{
		`{}`: {}, `{"a":-5,"c":true}`: {A: -5, C: true}, `{"b":"x","d":18446744073709551615}`: {B: "x", D: 1<<64 - 1}, `{"e":"y"}`: {E: word{"y"}},
	} {
		o := Write([]byte("x"))
		m.list(&o)
		require.Equal(t, "x"+want, string(o.End()))
	}
	var n int
	o := Write(nil)
	Number(&o, `"n":`, &n, true)
	Quoted(&o, `"e":`, new(word), true)
	require.Equal(t, `{"n":0,"e":""}`, string(o.End()))
}

// FuzzObject checks that an object that is read has the meaning that encoding/json gives it, and
// that one that is written has that of its members.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":"x","c":true}`, `{"a":-0}`, `{"b":"x","c":false}`, `{"a":000}`, `{"b":"` + "\x7f" + `"}`, `{"d":5,"e":"y"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var want, got members
		err := json.Unmarshal(object, &want)
		if got.read(object) {
			require.NoError(t, err, "%q", object)
			require.Equal(t, want, got, "%q", object)
		}
		if err != nil {
			return
		}
		text, err := json.Marshal(want)
		require.NoError(t, err)
		o := Write(nil)
		want.list(&o)
		require.Equal(t, string(text), string(o.End()))
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

// TestObject_Lists_AreAsJSONWritesThem: of objects, of which the last may be empty.
func TestObject_Lists_AreAsJSONWritesThem(t *testing.T) {
	type member struct {
		N string `json:"n,omitempty"`
	}
	at := time.Date(2026, 3, 1, 2, 3, 4, 560_000_000, time.UTC)
	for _, html := range []bool{true, false} {
		for n := range 4 {
			v := struct {
				S    string    `json:"s"`
				D    uint64    `json:"d,string"`
				E    uint64    `json:"e,string,omitempty"`
				List []member  `json:"list,omitempty"`
				At   time.Time `json:"at"`
			}{D: 0, List: make([]member, n), At: at}
			if n > 1 {
				v.E, v.S, v.List[0].N = 1<<64-1, "<&>\u2028", "a\"<b>\xff"
			}
			var want bytes.Buffer
			enc := json.NewEncoder(&want)
			enc.SetEscapeHTML(!html)
			require.NoError(t, enc.Encode(v))
			o := Write(nil)
			if html {
				o = WriteHTML(nil)
			}
			o.String(`"s":`, v.S)
			o.Digits(`"d":`, v.D, true)
			o.Digits(`"e":`, v.E, false)
			for i := range v.List {
				o.Item(`"list":`, i)
				o.Text(`"n":`, &v.List[i].N)
				o.EndItem(i == n-1)
			}
			o.Time(`"at":`, v.At)
			require.Equal(t, want.String(), string(o.End())+"\n")
		}
	}
}
