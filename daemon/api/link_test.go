package api

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// FuzzEvent appends events of all kinds. Each is JSON, and decodes to the same event.
func FuzzEvent(f *testing.F) { // 20000x
	f.Add(uint8(0), "db/ä <1>", 1, uint64(3), int64(-5), "\n\"")
	f.Add(uint8(4), "", 0, uint64(0), int64(0), "")
	f.Fuzz(func(t *testing.T, kind uint8, text string, n int, u uint64, ms int64, more string) {
		e := Event{Kind: kinds[int(kind)%len(kinds)]}
		switch e.Kind {
		case Waiting:
			e.Ahead, e.Queued, e.LeaseMS = n, n, ms
		case Granted:
			e.Name, e.Mode, e.Change, e.Token, e.Host = text, layout.Mode(u%2), u, layout.MakeTicket(u%layout.MaxNumber, int(1+u%layout.MaxHosts)), n
			e.LeaseMS, e.AtMS, e.GraceMS, e.Witness = ms, ms, ms, more
		case Confirmed, Renewed:
			e.LeaseMS, e.AtMS, e.Message = ms, ms, more
		case Lost:
			if e.Message, e.AtMS = more, ms; ms != 0 {
				e.LeaseMS = ms
			}
		case Mode:
			e.Mode, e.Change = layout.Mode(u%2), u
		case Requested:
			e.Host, e.HostName, e.Message = n, text, more
		case Warning:
			e.Message = more
		case Refused:
			e = Refusal(&Error{Code: text, Message: more, Hint: text})
		}
		out := e.Append(nil)
		var want Event
		require.NoError(t, json.Unmarshal(out, &want), "%q", out)
		got, known, err := DecodeEvent(out)
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, want, got, "%q", out)
		if text == string([]rune(text)) && more == string([]rune(more)) { // invalid UTF-8 is replaced
			require.Equal(t, e, got, "%q", out)
		}
	})
}

// FuzzDecodeEvent: the fast decoder returns the same event as encoding/json.
func FuzzDecodeEvent(f *testing.F) {
	for _, seed := range []string{
		`{"event":"granted","name":"x","mode":"exclusive","token":"3676650270761156864","host":1,"lease_ms":29870,"at_ms":8123456,"grace_ms":5000}`,
		`{"event":"released"}`, `{"event":"renewed","lease_ms":-5}`, `{"event":"waiting","ahead":1,"queued":1}`, `{"event":"weather","ahead":"rain"}`,
		`{"event":"refused","code":"busy"}`, `{"Event":"granted"}`, `{"event":"granted","event":"lost"}`, `{"token":"1","event":"granted"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, known, err := DecodeEvent(text)
		var want Event
		switch jsonErr := json.Unmarshal(text, &want); {
		case err != nil:
			require.Error(t, jsonErr, "%q", text)
		case known:
			require.NoError(t, jsonErr, "%q", text)
			require.Equal(t, want, got, "%q", text)
		case jsonErr == nil:
			require.False(t, slices.Contains(kinds, want.Kind), "%q", text)
		}
	})
}
