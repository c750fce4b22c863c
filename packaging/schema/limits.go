package schema

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/invopop/jsonschema"

	"github.com/bakeryd/bakeryd/layout"
)

// limits are the values of a member of requests that bakeryd accepts. Lengths are those of the
// longest text in ASCII: bakeryd counts bytes, and a schema counts characters.
var limits = []struct {
	of, member string // of: empty for all types of requests
	set        func(s *jsonschema.Schema)
}{
	{"", "name", length(1, layout.MaxLockName)},
	{"", "permits", numbers(0, layout.MaxHosts)},
	{"", "timeout_ms", atLeast(0)},
	{"", "host", numbers(1, layout.MaxHosts)},
	{"", "session", pattern("^[0-9a-f]{32}$")},
	{"LockRequest", "session", pattern("^([0-9a-f]{32})?$")},
	{"RequestRequest", "message", length(0, layout.MaxRequest)},
	{"ValueRequest", "value", length(0, base64.StdEncoding.EncodedLen(layout.MaxValue))},
	{"MeetRequest", "rounds", numbers(1, 1_000_000)},
	{"MeetRequest", "timeout_ms", numbers(1, 3_600_000)},
	{"FloorRequest", "rounds", numbers(1, 1000)},
}

// limit sets the limits of the members of a type of requests.
func limit(of string, s *jsonschema.Schema) {
	for _, l := range limits {
		if member, ok := s.Properties.Get(l.member); ok && (l.of == "" || l.of == of) {
			l.set(member)
		}
	}
}

func length(least, most int) func(*jsonschema.Schema) {
	from, to := uint64(least), uint64(most)
	return func(s *jsonschema.Schema) { s.MinLength, s.MaxLength = &from, &to }
}

func numbers(least, most int) func(*jsonschema.Schema) {
	return func(s *jsonschema.Schema) { s.Minimum, s.Maximum = number(least), number(most) }
}

func atLeast(least int) func(*jsonschema.Schema) {
	return func(s *jsonschema.Schema) { s.Minimum = number(least) }
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

func pattern(p string) func(*jsonschema.Schema) {
	return func(s *jsonschema.Schema) { s.Pattern = p }
}
