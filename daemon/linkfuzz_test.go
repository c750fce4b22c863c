package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// FuzzLinkRequest: a line that is read by hand says what encoding/json reads in it.
func FuzzLinkRequest(f *testing.F) {
	for _, seed := range []string{
		`{"lock":{"name":"x"}}`, `{"unlock":"3676650270761156864"}`, `{"unlock":"1"}`, `{"lock":{"name":"x","mode":"shared","nonblock":true}}`,
		`{"lock":{"name":"x","timeout_ms":5,"permits":2,"pid":7,"command":"sh","session":"00","token":"0","witness":true,"requests":false}}`,
		`{"lock":{"name":"x","name":"y"}}`, `{"lock":{"name":"x"}} `, `{"lock":{"Name":"x"}}`, `{"unlock":"0","unlock":"0"}`, `{"lock":{"pid":-0}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var byHand, byJSON linkRequest
		if !byHand.parsePlain(text) {
			return
		}
		require.NoError(t, decodeBody(strings.NewReader(string(text)), &byJSON), "%q", text)
		require.Equal(t, byJSON, byHand, "%q", text)
		require.NotEqual(t, byHand.Lock == nil, byHand.Unlock == nil)
	})
}

// FuzzEvent: what is written by hand is what encoding/json writes.
func FuzzEvent(f *testing.F) { // 20000x
	f.Add("granted", "db/ä <1>", 1, uint64(3), int64(-5), "\n\"", uint8(255))
	f.Add("waiting", "", 0, uint64(0), int64(0), "", uint8(0))
	f.Fuzz(func(t *testing.T, kind, text string, n int, u uint64, ms int64, more string, which uint8) {
		e := event{Event: kind, Name: text, Change: u, HostID: n, GraceMS: ms, Witness: more, Code: text, Message: more, Hint: text, Host: n, HostName: more}
		mode, token := layout.Mode(u%2), layout.Ticket(u)
		for i, set := range []func(){
			func() { e.Ahead = &n }, func() { e.Queued = &n }, func() { e.Mode = &mode }, func() { e.Token = &token },
			func() { e.LeaseMS = &ms }, func() { e.AtMS = &ms },
		} {
			if which>>i&1 != 0 {
				set()
			}
		}
		want, err := json.Marshal(e)
		require.NoError(t, err)
		require.Equal(t, string(want)+"\n", string(e.append(nil)))
	})
}
