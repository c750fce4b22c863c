package layout

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxLockName is the longest name of a lock, in bytes.
	MaxLockName = 128

	// MaxName is the longest name of a lockspace or of a host, in bytes.
	MaxName = 64
)

// ValidateLockName returns an ErrField unless name is valid for a lock: 1 to MaxLockName bytes of
// UTF-8 without control characters.
func ValidateLockName(name string) error { return checkText("lock name", name, 1, MaxLockName) }

// ValidateLockspaceName returns an ErrField unless name is valid for a lockspace: at most MaxName
// bytes of UTF-8 without control characters.
func ValidateLockspaceName(name string) error { return checkText("lockspace name", name, 0, MaxName) }

// ValidateHostName returns an ErrField unless name is valid for a host: at most MaxName bytes of
// UTF-8 without control characters.
func ValidateHostName(name string) error { return checkText("host name", name, 0, MaxName) }

// ValidateRequest returns an ErrField unless message is valid in a request: at most MaxRequest
// bytes of UTF-8 without control characters.
func ValidateRequest(message string) error {
	return checkText("request message", message, 0, MaxRequest)
}

func checkText(field, text string, low, high int) error {
	if len(text) < low || len(text) > high {
		return fmt.Errorf("%s of %d bytes, want %d to %d: %w", field, len(text), low, high, ErrField)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s %q, want UTF-8: %w", field, text, ErrField)
	}
	for at, r := range text {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s %q, want no control characters, found %U at byte %d: %w", field, text, r, at, ErrField)
		}
	}
	return nil
}

// enum has the names of the values of a field.
type enum struct {
	field string
	names []string
}

// name returns the name of a value, also of one that the format does not allow.
func (e enum) name(value uint8) string {
	if int(value) < len(e.names) {
		return e.names[value]
	}
	return fmt.Sprintf("%s(%d)", e.field, value)
}

func (e enum) marshal(value uint8) ([]byte, error) {
	if err := within(e.field, int(value), 0, len(e.names)-1); err != nil {
		return nil, err
	}
	return []byte(e.names[value]), nil
}

// unmarshal sets value to the one with the name text.
func unmarshal[T ~uint8](e enum, value *T, text []byte) error {
	found := slices.Index(e.names, string(text))
	if found < 0 {
		return fmt.Errorf("%s %q, want %s: %w", e.field, text, strings.Join(e.names, " or "), ErrField)
	}
	*value = T(found)
	return nil
}
