// Package body decodes the JSON of requests. Members that this bakeryd does not know are ignored, so
// that a newer client works with it, but for conditions: a request is refused if it has one that is
// not known. It knows JSON and no call. Start reading at Decode.
package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
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
// that is given twice, text after the object, and an unknown condition.
func Decode(text []byte, into any) (unknown []string, err error) {
	names, err := members(text)
	if err != nil {
		return nil, fmt.Errorf("%w: body: %w", api.ErrInvalid, err)
	}
	if known := strictly(text, into); known != nil {
		for _, name := range names {
			if has(into, name) {
				continue
			}
			if unknown = append(unknown, name); len(unknown) > maxUnknown {
				return nil, fmt.Errorf("%w: body: more than %d members that this bakeryd does not know", api.ErrInvalid, maxUnknown)
			}
		}
		if len(unknown) == 0 {
			return nil, fmt.Errorf("%w: body: %w", api.ErrInvalid, known)
		}
	}
	for _, name := range unknown {
		if isCondition(name) {
			return nil, &unknownCondition{name}
		}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("%w: body: %w", api.ErrInvalid, err)
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

// members returns the names of the members of the object that is all of a text.
func members(text []byte) (names []string, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	switch t, err := dec.Token(); {
	case err != nil:
		return nil, err
	case t != json.Delim('{'):
		return nil, errors.New("want a JSON object")
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name := t.(string) // the decoder accepts nothing else there
		if seen[folded(name)] {
			return nil, fmt.Errorf("member %s is given twice", quote(name))
		}
		seen[folded(name)] = true
		names = append(names, name)
		if err := dec.Decode(new(json.RawMessage)); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return names, nil
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

// strictly decodes a text. It returns an error if there is an unknown member.
func strictly(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// has reports whether encoding/json knows a member of that name in the struct that into points to.
func has(into any, name string) bool {
	key, _ := json.Marshal(name) // strings have no error
	return strictly(fmt.Appendf(nil, "{%s:null}", key), reflect.New(reflect.TypeOf(into).Elem()).Interface()) == nil
}

// quote returns the beginning of a name that a client sent, quoted and in printable ASCII.
func quote(name string) string {
	if len(name) > maxName {
		name = name[:maxName] + "..."
	}
	return strconv.QuoteToASCII(name)
}

// unknownCondition is returned for a request with a condition that this bakeryd does not know.
type unknownCondition struct{ name string }

// Error implements error.
func (e *unknownCondition) Error() string {
	return fmt.Sprintf("%v: the request has the condition %s, which this bakeryd does not know", api.ErrInvalid, quote(e.name))
}

// Unwrap returns api.ErrInvalid.
func (e *unknownCondition) Unwrap() error { return api.ErrInvalid }

// Hint returns what the user can do.
func (e *unknownCondition) Hint() string {
	return "update bakeryd on this host; a condition is never ignored"
}
