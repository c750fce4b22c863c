// Package line is how bakeryd and its clients write and read the lines that go
// over a link, each one JSON object. It knows JSON and bounds; it never knows
// what is said.
//
// encoding/json decides what a line means. What is here is for the few lines
// between a lock and its grant, for which it takes too long: [AppendString]
// writes what it writes, and [Members] reads objects of the plainest form, as
// which bakeryd and its own client write them. Whatever is not of that form is
// left to encoding/json. Begin with [Reader].
package line

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// ErrTooLong is returned for a line of more bytes than are allowed.
var ErrTooLong = errors.New("line is too long")

// firstSize is what a reader takes until a line needs more: most that have one
// are idle.
const firstSize = 1024

// Reader reads lines. It keeps no more memory than the present line takes.
type Reader struct {
	src   io.Reader
	limit int
	buf   []byte
	begin int // of what was read and not returned yet
	end   int
}

// NewReader returns a reader of lines of at most limit bytes, their ends
// included. The first bytes are those of head, which it copies.
func NewReader(src io.Reader, head []byte, limit int) *Reader {
	r := &Reader{src: src, limit: limit, buf: make([]byte, max(firstSize, len(head)))}
	r.end = copy(r.buf, head)
	return r
}

// Next returns the next line without its end; it is good until the next call.
// It returns ErrTooLong, or an error of the source: io.ErrUnexpectedEOF if that
// has ended within a line.
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

// makeRoom has room behind what is yet to be returned, which is less than the
// limit.
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

// Rest returns what was read and not returned yet; it is good until the next
// call of Next.
func (r *Reader) Rest() []byte { return r.buf[r.begin:r.end] }

// AppendString appends a string as [json.Marshal] writes it.
func AppendString(to []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&':
			quoted, _ := json.Marshal(s) // a string is no error
			return append(to, quoted...)
		}
	}
	to = append(to, '"')
	to = append(to, s...)
	return append(to, '"')
}

// AppendText appends a member of an object, with its name and colon as given, unless the text is empty.
func AppendText(to []byte, name, s string) []byte {
	if s == "" {
		return to
	}
	return AppendString(append(to, name...), s)
}

// AppendNumber appends a member unless the number is zero.
func AppendNumber(to []byte, name string, n int64) []byte {
	if n == 0 {
		return to
	}
	return strconv.AppendInt(append(to, name...), n, 10)
}
