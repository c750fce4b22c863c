// Package http1 reads the HTTP/1.1 that bakeryd writes. Package net/http reads all of HTTP, and makes
// the start of every program that links it half as long again, which bakeryctl lock would pay for
// each command. It knows nothing of the API. Start reading at Read.
package http1

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/textproto"
	"strconv"
	"strings"
)

// The statuses that a client distinguishes.
const (
	StatusSwitchingProtocols = 101
	StatusOK                 = 200
	StatusNotFound           = 404
)

// Answer is an HTTP answer.
type Answer struct {
	Status int
	Text   string        // of the status, such as "404 Not Found"
	In     *bufio.Reader // at the start of the body
	Body   io.Reader     // its end is an error unless it is complete

	Warning string // text of the header of that name; "" if none
}

// Read reads an answer, at most limit bytes with its body, up to the body.
func Read(conn io.Reader, limit int64) (*Answer, error) {
	a := &Answer{In: bufio.NewReader(&bounded{conn, limit, limit})}
	header := textproto.NewReader(a.In)
	line, err := header.ReadLine()
	if err != nil {
		return nil, err
	}
	version, text, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(text, " ")
	a.Text = text
	a.Status, err = strconv.Atoi(code)
	if err != nil || len(code) != 3 || !strings.HasPrefix(version, "HTTP/1.") {
		return nil, fmt.Errorf("no HTTP answer: %.40q", line)
	}
	fields, err := header.ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	a.Warning = warning(fields.Get("Warning"))
	coding, length := fields.Get("Transfer-Encoding"), fields.Get("Content-Length")
	switch {
	case strings.EqualFold(coding, "chunked"):
		a.Body = &body{in: a.In, chunked: true}
	case coding != "":
		return nil, fmt.Errorf("unknown transfer encoding %.40q", coding)
	case length != "":
		n, err := parseSize(length, 10)
		if err != nil {
			return nil, err
		}
		a.Body = &body{in: a.In, left: n}
	default:
		a.Body = a.In // until the connection ends
	}
	return a, nil
}

// warning returns the text of a header such as `299 - "text"` (RFC 7234, section 5.5).
func warning(header string) string {
	quoted, _ := strings.CutPrefix(header, "299 - ")
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return quoted
	}
	return text
}

// body is a body of known length, or in chunks (RFC 9112, section 7.1).
type body struct {
	in      *bufio.Reader
	left    int64 // bytes of the body, or of the current chunk
	chunked bool
	begun   bool // a chunk was read
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		if err := b.next(); err != nil {
			return 0, err
		}
	}
	n, err := b.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, incomplete(err)
}

// next reads the head of the next chunk. It returns io.EOF after the last one.
func (b *body) next() error {
	if !b.chunked {
		return io.EOF
	}
	if b.begun {
		if end, err := b.line(); err != nil || end != "" {
			return cmp.Or(err, errors.New("a chunk of another length"))
		}
	}
	b.begun = true
	head, err := b.line()
	if err != nil {
		return err
	}
	size, _, _ := strings.Cut(head, ";")
	if b.left, err = parseSize(strings.TrimSpace(size), 16); err == nil && b.left == 0 {
		b.chunked, err = false, io.EOF // a trailer is not read: the connection is used once
	}
	return err
}

// line reads a line between chunks.
func (b *body) line() (string, error) {
	line, err := b.in.ReadSlice('\n')
	return strings.TrimRight(string(line), "\r\n"), incomplete(err)
}

// incomplete returns the error of a read within a body.
func incomplete(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseSize(text string, base int) (int64, error) {
	n, err := strconv.ParseUint(text, base, 64)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("invalid length %.40q", text)
	}
	return int64(n), nil
}

// bounded reads at most limit bytes of a source.
type bounded struct {
	io.Reader
	left, limit int64
}

// Read returns a tooLongError if there is more.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, tooLongError{b.limit}
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// tooLongError is returned for an answer of more bytes than its limit.
type tooLongError struct{ limit int64 }

func (e tooLongError) Error() string { return fmt.Sprintf("an answer of more than %d bytes", e.limit) }
