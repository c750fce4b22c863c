package daemon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLinkRequest: a line that parsePlain reads has the same meaning to encoding/json.
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
