package http1

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// TestRead_Body_IsThatOfNetHTTP also for answers that end early.
func TestRead_Body_IsThatOfNetHTTP(t *testing.T) {
	const head, chunked = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, text := range map[string]string{
		"to the end":           head + "\r\n{}",
		"empty":                head + "Content-Length: 0\r\n\r\n",
		"of a length":          head + "content-length: 2\r\n\r\n{}",
		"less than its length": head + "Content-Length: 3\r\n\r\n{}",
		"more than its length": head + "Content-Length: 1\r\n\r\n{}",
		"no chunk":             chunked + "0\r\n\r\n",
		"chunks":               chunked + "2\r\n{\n\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
		"large chunk":          chunked + "2710\r\n" + strings.Repeat("a", 10000) + "\r\n0\r\n\r\n",
		"no last chunk":        chunked + "2\r\n{}\r\n",
		"half a chunk":         chunked + "5\r\n{}",
		"no size":              chunked + "\r\n{}\r\n",
		"a longer chunk":       chunked + "1\r\n{}\r\n0\r\n\r\n",
		"a negative size":      chunked + "-1\r\n{}\r\n0\r\n\r\n",
		"a huge size":          chunked + "fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
		"another status":       "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 1\r\n\r\nx",
	} {
		want, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
		require.NoError(t, err, name)
		wantBody, wantErr := io.ReadAll(want.Body)
		for _, source := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			a, err := Read(source, 1<<20)
			require.NoError(t, err, name)
			require.Equal(t, want.StatusCode, a.Status, name)
			require.Equal(t, want.Status, a.Text, name)
			body, err := io.ReadAll(a.Body)
			require.Equal(t, string(wantBody), string(body), name)
			require.Equal(t, wantErr == nil, err == nil, "%s: %v, want %v", name, err, wantErr)
			require.Equal(t, wantErr == io.ErrUnexpectedEOF, err == io.ErrUnexpectedEOF, "%s: %v, want %v", name, err, wantErr)
		}
	}
}

func TestRead_InvalidHead_IsRefused(t *testing.T) {
	for _, text := range []string{
		"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 OK\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
	} {
		_, err := Read(strings.NewReader(text), 1<<20)
		require.Error(t, err, "%q", text)
		require.NotErrorIs(t, err, io.EOF, "%q", text)
		require.NotErrorIs(t, err, io.ErrUnexpectedEOF, "%q", text)
	}
}
