// Package line writes and reads the lines that bakeryd and its clients exchange, each one JSON
// object. It knows JSON and size limits. It never knows the meaning of a line.
//
// encoding/json defines that meaning. This package is a faster way for the few lines between a
// lock request and its grant. [Object] writes what encoding/json writes, and reads objects of the
// simplest form, which bakeryd and its own client write. The caller uses encoding/json for all
// others. Begin with [Reader].
package line

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ErrTooLong is returned for a line of more bytes than are allowed.
var ErrTooLong = errors.New("line is too long")

// firstSize is the initial buffer of a reader. Most readers are idle and need no more.
const firstSize = 1024

// Reader reads lines. It uses only as much memory as the present line.
type Reader struct {
	src   io.Reader
	limit int
	buf   []byte
	begin int // bounds of the bytes read but not returned yet
	end   int
}

// NewReader returns a reader of lines of at most limit bytes, including their ends. The first
// bytes are those of head, which it copies.
func NewReader(src io.Reader, head []byte, limit int) *Reader {
	r := &Reader{src: src, limit: limit, buf: make([]byte, max(firstSize, len(head)))}
	r.end = copy(r.buf, head)
	return r
}

// Next returns the next line without its end. The line is valid until the next call. Next returns
// ErrTooLong, or an error of the source: io.ErrUnexpectedEOF if that has ended within a line.
func (r *Reader) Next() ([]byte, error) {
	seen := 0
	for {
		if i := bytes.IndexByte(r.buf[r.begin+seen:r.end], '\n'); i >= 0 {
			line := r.buf[r.begin : r.begin+seen+i]
			r.begin += seen + i + 1
			if len(line) >= r.limit {
				return nil, ErrTooLong
			}
			return line, nil
		}
		seen = r.end - r.begin
		if seen >= r.limit {
			return nil, ErrTooLong
		}
		r.makeRoom()
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && seen > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// makeRoom makes room after the bytes that were not returned yet, which are fewer than the limit.
func (r *Reader) makeRoom() {
	rest := r.buf[r.begin:r.end]
	switch {
	case len(rest) == 0 && len(r.buf) > firstSize:
		r.buf = make([]byte, firstSize)
	case len(rest) == 0 || r.begin > 0:
		copy(r.buf, rest)
	case r.end == len(r.buf):
		r.buf = make([]byte, min(2*len(r.buf), max(r.limit, len(r.buf)+1)))
		copy(r.buf, rest)
	}
	r.begin, r.end = 0, len(rest)
}

// Rest returns the bytes that were read but not returned yet. They are valid until the next call
// of Next.
func (r *Reader) Rest() []byte { return r.buf[r.begin:r.end] }

// AppendString appends a string as [json.Marshal] writes it.
func AppendString(to []byte, s string) []byte {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) // strings have no error
			return append(to, quoted...)
		}
	}
	to = append(to, '"')
	to = append(to, s...)
	return append(to, '"')
}
