// Package text shows names and sizes to people: texts from the disk, which may contain anything, and numbers of bytes.
package text

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Printable returns a text from the disk as it can be shown on a terminal: as it is, or quoted and escaped if it
// is empty or contains spaces, quotes, or characters that are invisible or change what surrounds them.
func Printable(text string) string {
	odd := func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' || r == '"' || r == '\\' || r == '\uFFFD' }
	if text == "" || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// HostName names a host in a message.
func HostName(id int, name string) string {
	if name == "" {
		return fmt.Sprintf("host %d", id)
	}
	return fmt.Sprintf("host %d (%s)", id, Printable(name))
}

// Bytes is a number of bytes; its text is the exact number and, behind it, one that people grasp.
type Bytes int64

func (b Bytes) String() string {
	if b < 1024 {
		return fmt.Sprintf("%d bytes", int64(b))
	}
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(b)/1024, 0
	for value >= 1023.95 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%d bytes (%.1f %s)", int64(b), value, units[unit])
}

// PrintableLine returns a command line as it is, or quoted if something in it would not show.
func PrintableLine(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// WithoutPath returns the cause of an error of a file operation, for a message that names the path already.
func WithoutPath(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) && err == error(pe) {
		return pe.Err
	}
	return err
}
