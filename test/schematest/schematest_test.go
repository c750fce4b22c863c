package schematest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutput_NotAsTheSchemaSays_IsAnError: also if only a reader of the schema would accept it.
func TestOutput_NotAsTheSchemaSays_IsAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, output, err string }{
		{"rm", `{"name": "x"}`, ""},
		{"rm", `{}`, "missing property 'name'"},
		{"rm", `{"name": "x", "more": 1}`, "additional properties 'more' not allowed"},
		{"rm", `{"name": null}`, "got null, want string"},
		{"rm", `{"name": "x"} {}`, "invalid character"},
		{"mode", `{"mode": "upside down"}`, "value must be one of 'exclusive', 'shared'"},
		{"locks", `{"locks": null}`, "got null, want array"},
		{"locks", `{"locks": [{"name": "x", "lock": 1, "permits": 1, "creation": 7}]}`, "got number, want string"},
		{"locks", `{"locks": [{"name": "x", "lock": 1, "permits": 1, "creation": "seven"}]}`, "does not match pattern"},
		{"hosts", `{"this_host": null, "hosts": []}`, ""},
		{"dump", "{\"offset\": 0, \"kind\": \"slot\"}\n{\"offset\": 512, \"kind\": \"word\"}\n", "value must be one of 'superblock'"},
		{"nonsense", `{}`, "bakeryctl-nonsense.json"},
	} {
		err := Output(c.command, []byte(c.output))
		if c.err == "" {
			require.NoError(t, err, c.output)
			continue
		}
		require.ErrorContains(t, err, c.err, c.output)
	}
}

// TestChecks_AnswerNotInTheDocument_Fails: a status, a code or a member that the document does not
// have.
func TestChecks_AnswerNotInTheDocument_Fails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status            int
		body, answer, err string
	}{
		{200, `{"name": "x"}`, `{"name": "x"}`, ""},
		{200, `{}`, `{"name": "x"}`, "served although the body is not valid"},
		{200, `{"name": "x"}`, `{"name": "x", "more": 1}`, "additional properties"},
		{418, `{"name": "x"}`, `{}`, "status 418 of type"},
		{409, `{"name": "x"}`, `{"error": {"code": "busy", "message": "it is held"}}`, ""},
		{409, `{"name": "x"}`, `{"error": {"code": "free", "message": "it is free"}}`, "value must be one of 'busy'"},
	} {
		var checks Checks
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v1/remove", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.answer)
		})
		body := httptest.NewRequest("POST", "/v1/remove", strings.NewReader(c.body))
		checks.Handler(mux).ServeHTTP(httptest.NewRecorder(), body)
		if err := checks.Failed(); c.err != "" {
			require.ErrorContains(t, err, c.err)
			var said strings.Builder
			require.Equal(t, 1, checks.Report(&said, 0))
			require.Contains(t, said.String(), c.err)
			continue
		}
		require.NoError(t, checks.Failed())
		if c.status == 200 {
			require.Equal(t, []string{"POST /v1/remove"}, checks.Served())
		}
	}
}
