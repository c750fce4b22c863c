// Package body decodes the JSON of requests. Members that this bakeryd does not know are ignored, so
// that a newer client works with it. Never ignored are conditions, and members that differ from a
// known one in upper and lower case only. It knows JSON and no call. Start reading at Decode.
package body

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/bakeryd/bakeryd/daemon/api"
)

const (
	maxUnknown = 64 // members of one object that may be unknown
	maxShown   = 8  // names of them in a warning
	maxName    = 40 // bytes of a name in a text
)

// conditions are what the name of a member begins with that must not be ignored.
var conditions = []string{"if_", "require_"}

// Decode decodes one JSON object into a struct, and returns the names of the members that the struct
// does not have, which it ignores. Its errors wrap api.ErrInvalid: a value that does not fit, a member
// that is given twice, a known name in another case, text after the object, and a condition that is
// unknown or null.
func Decode(text []byte, into any) (unknown []string, err error) {
	given, err := members(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	known := names(into)
	for _, m := range given {
		if slices.Contains(known, m.name) {
			if isCondition(m.name) && string(m.value) == "null" {
				return nil, fmt.Errorf("%w: member %s is null, want true or false", api.ErrInvalid, quote(m.name))
			}
			continue
		}
		// encoding/json would take it for the known one.
		if i := slices.IndexFunc(known, func(name string) bool { return strings.EqualFold(name, m.name) }); i >= 0 {
			return nil, fmt.Errorf("%w: member %s is misspelt, want %q", api.ErrInvalid, quote(m.name), known[i])
		}
		if unknown = append(unknown, m.name); len(unknown) > maxUnknown {
			return nil, fmt.Errorf("%w: more than %d members that this bakeryd does not know", api.ErrInvalid, maxUnknown)
		}
	}
	if i := slices.IndexFunc(unknown, isCondition); i >= 0 {
		return nil, &unknownMember{"condition", unknown[i], "update bakeryd on this host; a condition is never ignored"}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, misfit(given, into, err))
	}
	return unknown, nil
}

// Warning returns a warning that members were ignored, in printable ASCII, or "" if there are none.
func Warning(ignored []string) string {
	if len(ignored) == 0 {
		return ""
	}
	shown := make([]string, min(len(ignored), maxShown))
	for i := range shown {
		shown[i] = quote(ignored[i])
	}
	more := ""
	if n := len(ignored) - len(shown); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("this bakeryd does not know, and ignores, the member %s%s of the request: check the spelling, or update bakeryd",
		strings.Join(shown, ", "), more)
}

// member is one member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of the object that is all of a text.
func members(text []byte) (all []member, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	switch t, err := dec.Token(); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("body is empty, want a JSON object")
	case err != nil:
		return nil, notJSON(err)
	case t != json.Delim('{'):
		return nil, errors.New("body is not a JSON object")
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		m := member{name: t.(string)} // the decoder accepts nothing else there
		if seen[folded(m.name)] {
			return nil, fmt.Errorf("member %s is given twice", quote(m.name))
		}
		seen[folded(m.name)] = true
		if err := dec.Decode(&m.value); err != nil {
			return nil, notJSON(err)
		}
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, notJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("body has more than one JSON value")
	}
	return all, nil
}

func notJSON(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("body is not JSON: %w", err)
}

// misfit returns an error that names the first of the members that does not fit into the struct, and
// the value that it wants. For all of them together encoding/json returned err.
func misfit(given []member, into any, err error) error {
	for _, m := range given {
		key, _ := json.Marshal(m.name) // strings have no error
		one := json.Unmarshal(fmt.Appendf(nil, "{%s:%s}", key, m.value), reflect.New(reflect.TypeOf(into).Elem()).Interface())
		if one == nil {
			continue
		}
		if other, ok := errors.AsType[*json.UnmarshalTypeError](one); ok {
			one = fmt.Errorf("want %s, found %.*s", wanted(other.Type), maxName, other.Value)
		} else if _, ok := errors.AsType[base64.CorruptInputError](one); ok {
			one = errors.New("want base64")
		}
		return fmt.Errorf("member %s: %w", quote(m.name), one)
	}
	return err
}

// wanted returns the JSON values that a type is read from.
func wanted(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Implements(textual) || reflect.PointerTo(t).Implements(textual) || t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "a string of base64"
	case t.Kind() == reflect.Slice:
		return "an array"
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		return "an object"
	}
	return "a whole number of at most 64 bits"
}

var textual = reflect.TypeFor[encoding.TextUnmarshaler]()

// names returns the names of the members of the struct that into points to.
func names(into any) (all []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(into).Elem()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// folded returns a name as encoding/json compares it, which ignores case.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }

func isCondition(name string) bool {
	for _, c := range conditions {
		if strings.HasPrefix(folded(name), c) {
			return true
		}
	}
	return false
}

// quote returns the beginning of a name that a client sent, quoted and in printable ASCII.
func quote(name string) string {
	if len(name) > maxName {
		name = name[:maxName] + "..."
	}
	return strconv.QuoteToASCII(name)
}

// unknownMember is returned for a request with a member that this bakeryd does not know and must not
// ignore.
type unknownMember struct{ what, name, why string }

// Final returns the error of a call that cannot be undone, and has a member that this bakeryd does not
// know.
func Final(name string) error {
	return &unknownMember{"member", name, "check the spelling, or update bakeryd on this host; the call cannot be undone, and ignores no member"}
}

// Error implements error.
func (e *unknownMember) Error() string {
	return fmt.Sprintf("%v: the request has the %s %s, which this bakeryd does not know", api.ErrInvalid, e.what, quote(e.name))
}

// Unwrap returns api.ErrInvalid.
func (e *unknownMember) Unwrap() error { return api.ErrInvalid }

// Hint returns what the user can do.
func (e *unknownMember) Hint() string { return e.why }
