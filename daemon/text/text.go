// Package text formats names and numbers for messages and JSON: texts from the disk, which may
// contain any byte, numbers of bytes, and incarnations.
package text

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Printable returns a text from the disk in a form that is safe on a terminal: unchanged, or quoted
// and escaped if it is empty or contains spaces, quotes, invisible characters, or characters that
// change the text around them.
func Printable(text string) string {
	odd := func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' || r == '"' || r == '\\' || r == '\uFFFD' }
	if text == "" || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// HostName returns the id and the name of a host for a message.
func HostName(id int, name string) string {
	if name == "" {
		return fmt.Sprintf("host %d", id)
	}
	return fmt.Sprintf("host %d (%s)", id, Printable(name))
}

// Bytes is a number of bytes.
type Bytes int64

// String returns the exact number, followed by a rounded one with a unit.
func (b Bytes) String() string {
	if b < 1024 {
		return fmt.Sprintf("%d bytes", int64(b))
	}
	value, units := float64(b)/1024, "KMGT"
	for value >= 1023.95 && len(units) > 1 {
		value, units = value/1024, units[1:]
	}
	return fmt.Sprintf("%d bytes (%.1f %ciB)", int64(b), value, units[0])
}

// Hex is a random number of 64 bits that identifies something, such as an incarnation. Its only
// notation is 16 lower-case hexadecimal digits, in JSON a string of them.
type Hex uint64

// String returns the 16 digits.
func (h Hex) String() string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(h)))
}

// MarshalText returns the 16 digits. It never returns an error.
func (h Hex) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads exactly 16 digits. No other notation is accepted, so that no decimal number is
// taken for another one.
func (h *Hex) UnmarshalText(digits []byte) error {
	n, err := strconv.ParseUint(string(digits), 16, 64)
	if err != nil || Hex(n).String() != string(digits) {
		return fmt.Errorf("%.40q: want 16 lower-case hexadecimal digits, such as 05ecc8dd11c0d831", digits)
	}
	*h = Hex(n)
	return nil
}

// PrintableLine returns a command line, quoted if it has characters that are not printable.
func PrintableLine(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// Shorten returns a text of at most limit bytes: unchanged, or cut after a word.
func Shorten(text string, limit int) string {
	const more = " ..."
	if len(text) <= limit {
		return text
	}
	cut := text[:limit-len(more)]
	if at := strings.LastIndexByte(cut, ' '); text[len(cut)] != ' ' && at > 0 {
		cut = cut[:at]
	}
	return strings.ToValidUTF8(cut, "") + more
}

// WithoutPath returns the cause of an error of a file operation, for a message that names the path already.
func WithoutPath(err error) error {
	if pe, ok := err.(*os.PathError); ok {
		return pe.Err
	}
	return err
}
