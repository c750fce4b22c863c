package line

import (
	"bytes"
	"strconv"
)

// Members calls member with the name and the value of each member of a plain object, in their
// order. It returns false if the object is not plain, which implies nothing else about it, or if
// member returns false. A plain object has this form:
//
//	object  one, with at least one member, and no white space
//	names   strings
//	values  strings, whole numbers of at most 18 digits, true and false
//	strings of ASCII without control characters, \ and "
//
// A value is passed unparsed: a string has its quotes. Both are valid until the line is changed.
func Members(object []byte, member func(name, value []byte) bool) bool {
	rest, ok := after(object, '{')
	for ok {
		var name, value []byte
		name, rest, _ = text(rest) // without a name, rest is nil
		if rest, ok = after(rest, ':'); !ok {
			return false
		}
		if value, rest, ok = scalar(rest); !ok || !member(name, value) {
			return false
		}
		if end, last := after(rest, '}'); last {
			return len(end) == 0
		}
		rest, ok = after(rest, ',')
	}
	return false
}

func after(b []byte, c byte) ([]byte, bool) {
	if len(b) == 0 || b[0] != c {
		return nil, false
	}
	return b[1:], true
}

// text parses a string, and returns its contents without the quotes.
func text(b []byte) (s, rest []byte, ok bool) {
	if b, ok = after(b, '"'); !ok {
		return nil, nil, false
	}
	for i, c := range b {
		switch {
		case c == '"':
			return b[:i], b[i+1:], true
		case c < ' ' || c > '~' || c == '\\':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// scalar parses a value.
func scalar(b []byte) (value, rest []byte, ok bool) {
	n := 0
	switch {
	case len(b) == 0:
	case b[0] == '"':
		if s, _, ok := text(b); ok {
			n = len(s) + 2
		}
	case bytes.HasPrefix(b, []byte("true")):
		n = len("true")
	case bytes.HasPrefix(b, []byte("false")):
		n = len("false")
	default:
		n = number(b)
	}
	return b[:n], b[n:], n > 0
}

// number returns the length of the whole number at the beginning, 0 if there is none.
func number(b []byte) int {
	n := 0
	if b[0] == '-' {
		n++
	}
	digits := 0
	for n+digits < len(b) && '0' <= b[n+digits] && b[n+digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > 18 || digits > 1 && b[n] == '0' {
		return 0
	}
	return n + digits
}

// Text sets a string from a value, and reports whether the value is a string.
func Text(value []byte, into *string) bool {
	s, _, ok := text(value)
	if ok {
		*into = string(s)
	}
	return ok
}

// Bytes returns the contents of a string value without the quotes, and whether it is one.
func Bytes(value []byte) ([]byte, bool) {
	s, _, ok := text(value)
	return s, ok
}

// Int sets a number from a value, and reports whether the value is one that fits.
func Int[T int | int64](value []byte, into *T) bool {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || int64(T(n)) != n {
		return false
	}
	*into = T(n)
	return true
}

// Bool sets a bool from a value, and reports whether the value is one.
func Bool(value []byte, into *bool) bool {
	switch string(value) {
	case "true":
		*into = true
	case "false":
		*into = false
	default:
		return false
	}
	return true
}
