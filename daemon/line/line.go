// Package line writes and reads the lines that bakeryd and its clients exchange, each one JSON
// object. It knows JSON and size limits. It never knows the meaning of a line.
//
// encoding/json defines that meaning. This package is a faster way for the few lines between a
// lock request and its grant. [Object] writes what encoding/json writes, and reads objects of the
// simplest form, which bakeryd and its own client write. The caller uses encoding/json for all
// others. Begin with [Reader].
package line

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// ErrTooLong is returned for a line of more bytes than are allowed.
var ErrTooLong = errors.New("line is too long")

// firstSize is the buffer of a reader. Most readers are idle and need no more.
const firstSize = 1024

// Reader reads lines. It keeps no memory for a line longer than firstSize.
type Reader struct {
	in    *bufio.Reader
	limit int
}

// NewReader returns a reader of lines of at most limit bytes, including their ends. The first
// bytes are those of head, which it copies.
func NewReader(src io.Reader, head []byte, limit int) *Reader {
	if len(head) > 0 {
		src = io.MultiReader(bytes.NewReader(head), src)
	}
	in := bufio.NewReaderSize(src, max(firstSize, len(head)))
	_, _ = in.Peek(len(head)) // they are there, and belong to Rest
	return &Reader{in, limit}
}

// Next returns the next line without its end. The line is valid until the next call. Next returns
// ErrTooLong, or an error of the source: io.ErrUnexpectedEOF if that has ended within a line.
func (r *Reader) Next() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := slices.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) < r.limit {
			line, err = r.in.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	switch {
	case len(line) > r.limit || errors.Is(err, bufio.ErrBufferFull):
		return nil, ErrTooLong
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	return line[:len(line)-1], nil
}

// Rest returns the bytes that were read but not returned yet. They are valid until the next call
// of Next.
func (r *Reader) Rest() []byte {
	rest, _ := r.in.Peek(r.in.Buffered()) // they are there
	return rest
}

// plain are the bytes that encoding/json does not escape, html those that it need not.
var plain, html = except(`"\<>&`), except(`"\`)

func except(escaped string) *[256]bool {
	var is [256]bool
	for c := ' '; c <= '~'; c++ {
		is[c] = !strings.ContainsRune(escaped, c)
	}
	return &is
}

// AppendString appends a string as [json.Marshal] writes it.
func AppendString(to []byte, s string) []byte { return appendString(to, s, plain) }

func appendString(to []byte, s string, plain *[256]bool) []byte {
	for i := range len(s) {
		if !plain[s[i]] {
			var quoted bytes.Buffer
			enc := json.NewEncoder(&quoted)
			enc.SetEscapeHTML(plain != html)
			_ = enc.Encode(s) // strings have no error
			return append(to, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
		}
	}
	to = append(to, '"')
	to = append(to, s...)
	return append(to, '"')
}
