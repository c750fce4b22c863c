package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured is a stream that records the largest buffer that was to be filled from it.
type measured struct {
	in      *bytes.Reader
	largest int
}

func (m *measured) Read(b []byte) (int, error) {
	m.largest = max(m.largest, len(b))
	return m.in.Read(b)
}

// FuzzRead reads arbitrary streams: a request that Read accepts encodes to one that reads the same,
// an invalid one that is not fatal was skipped, and no buffer exceeds the longest request.
func FuzzRead(f *testing.F) { // 15000x
	for _, message := range golden(f) {
		f.Add(message)
		f.Add(set(append(bytes.Clone(message), next...), map[int]uint32{24: 3}))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		m := &measured{in: bytes.NewReader(stream)}
		for {
			before := m.in.Len()
			q, err := Read(m)
			require.LessOrEqual(t, m.largest, MaxMessage)
			var invalid *Error
			switch {
			case err == nil:
				requireSame(t, q)
			case errors.As(err, &invalid) && !invalid.Fatal:
				header := Request{Header: invalid.Header}
				length, err := header.bodyLength()
				require.NoError(t, err)
				require.Equal(t, HeaderSize+int(length), before-m.in.Len())
			default:
				require.True(t, invalid != nil || err == io.EOF && before == 0 || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
				return
			}
		}
	})
}

// requireSame checks that the request survives encoding.
func requireSame(t *testing.T, q *Request) {
	t.Helper()
	got, err := Read(bytes.NewReader(q.Append(nil)))
	require.NoError(t, err)
	got.Length = q.Length
	require.Equal(t, q, got)
}
