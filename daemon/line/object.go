package line

import (
	"bytes"
	"strconv"
	"time"
)

// Object is an object that is written, or read if it is plain, member by member. Its functions take
// the variable of a member, so that one list of calls serves both. That list has the order in which
// the members are written; members of another order are not read. Members that are zero are not
// written unless always is set.
//
// A name is given with its quotes and colon. A plain object has this form:
//
//	object  one, with at least one member, and no white space
//	values  strings, whole numbers of at most 18 digits, true and false
//	strings of ASCII without control characters, \ and "
type Object struct {
	reads bool
	plain *[256]bool // bytes that are not escaped
	text  []byte     // as written so far, or as not read yet, from the character before the next member
}

// Write returns an object that is appended to a text.
func Write(to []byte) Object { return Object{plain: plain, text: append(to, '{')} }

// WriteHTML is Write without the escapes that texts in HTML need.
func WriteHTML(to []byte) Object { return Object{plain: html, text: append(to, '{')} }

// End returns the text with the complete object.
func (o *Object) End() []byte { return append(o.text, '}') }

// Read returns an object that is read from a text.
func Read(text []byte) Object {
	if !bytes.HasPrefix(text, []byte("{")) {
		text = nil
	}
	return Object{reads: true, text: text}
}

// Done reports whether all members were read. If it returns false, that implies nothing about the
// object but that it must be read by encoding/json.
func (o *Object) Done() bool { return string(o.text) == "}" }

// name appends the beginning of a member.
func (o *Object) name(name string) []byte {
	if o.text[len(o.text)-1] != '{' {
		o.text = append(o.text, ',')
	}
	return append(o.text, name...)
}

// at returns the text from the value of a member on, nil unless that is the next one to read.
func (o *Object) at(name string) []byte {
	if !o.reads || len(o.text) <= len(name) || o.text[0] == '}' || string(o.text[1:1+len(name)]) != name {
		return nil
	}
	return o.text[1+len(name):]
}

// goOn continues after a value; the text is nil if that is not one of its member, or not plain.
func (o *Object) goOn(text []byte) {
	if len(text) == 0 || text[0] != ',' && text[0] != '}' {
		text = nil
	}
	o.text = text
}

// Text adds a string.
func (o *Object) Text(name string, s *string) {
	if value := o.at(name); value != nil {
		contents, rest := unquote(value)
		if string(contents) != *s { // a caller may know it, which costs no allocation
			*s = string(contents)
		}
		o.goOn(rest)
	} else if !o.reads && *s != "" {
		o.text = appendString(o.name(name), *s, o.plain)
	}
}

// Quoted adds a string that is the text of another type.
func Quoted[T interface {
	comparable
	String() string
}, P interface {
	*T
	UnmarshalText(text []byte) error
}](o *Object, name string, v P, always bool) {
	if value := o.at(name); value != nil {
		contents, rest := unquote(value)
		read := new(T) // so that v, as a part of a larger variable, need not be on the heap
		if P(read).UnmarshalText(contents) != nil {
			rest = nil
		}
		*v = *read
		o.goOn(rest)
	} else if !o.reads && (always || *v != *new(T)) {
		o.text = appendString(o.name(name), (*v).String(), o.plain)
	}
}

// String writes a string, also an empty one.
func (o *Object) String(name, s string) { o.text = appendString(o.name(name), s, o.plain) }

// Digits writes a number as a string.
func (o *Object) Digits(name string, n uint64, always bool) {
	if always || n != 0 {
		o.text = append(o.name(name), '"')
		o.text = append(strconv.AppendUint(o.text, n, 10), '"')
	}
}

// Item begins the object with number i in a list, whose members are written until EndItem.
func (o *Object) Item(name string, i int) {
	if i == 0 {
		o.text = append(o.name(name), '[', '{')
	} else {
		o.text = append(o.text, ',', '{')
	}
}

// EndItem ends the object, and the list if it was the last one.
func (o *Object) EndItem(last bool) {
	o.text = append(o.text, '}')
	if last {
		o.text = append(o.text, ']')
	}
}

// Time writes a time between the years 0 and 9999.
func (o *Object) Time(name string, t time.Time) {
	o.text = append(o.name(name), '"')
	o.text = append(t.AppendFormat(o.text, time.RFC3339Nano), '"')
}

// Number adds a number.
func Number[T ~int | ~int64 | ~uint64](o *Object, name string, n *T, always bool) {
	if value := o.at(name); value != nil {
		digits := number(value)
		i, err := strconv.ParseInt(string(value[:digits]), 10, 64)
		*n = T(i)
		rest := value[digits:]
		if err != nil || int64(*n) != i || (*n < 0) != (i < 0) {
			rest = nil
		}
		o.goOn(rest)
	} else if !o.reads && *n < 0 {
		o.text = strconv.AppendInt(o.name(name), int64(*n), 10)
	} else if !o.reads && (always || *n != 0) {
		o.text = strconv.AppendUint(o.name(name), uint64(*n), 10)
	}
}

// Flag adds a bool.
func (o *Object) Flag(name string, is *bool) {
	if value := o.at(name); value != nil {
		rest, ok := bytes.CutPrefix(value, []byte("true"))
		if *is = ok; !ok {
			rest, ok = bytes.CutPrefix(value, []byte("false"))
		}
		if !ok {
			rest = nil
		}
		o.goOn(rest)
	} else if !o.reads && *is {
		o.text = append(o.name(name), "true"...)
	}
}

// unquote returns the contents of a string, and the text after it.
func unquote(text []byte) (contents, rest []byte) {
	if !bytes.HasPrefix(text, []byte(`"`)) {
		return nil, nil
	}
	for i, c := range text[1:] {
		switch {
		case c == '"':
			return text[1 : 1+i], text[2+i:]
		case c < ' ' || c > '~' || c == '\\':
			return nil, nil
		}
	}
	return nil, nil
}

// number returns the length of the whole number at the beginning, 0 if there is none.
func number(text []byte) int {
	first := 0 // of the digits
	if bytes.HasPrefix(text, []byte("-")) {
		first = 1
	}
	n := first
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	if digits := n - first; digits == 0 || digits > 18 || digits > 1 && text[first] == '0' {
		return 0
	}
	return n
}
