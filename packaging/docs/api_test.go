package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/schematest"
)

var (
	// asked has the path of a call, without the query, and its body.
	asked = regexp.MustCompile(`^\$ curl .*http://bakery(/v1/[a-z]+)[^ ]*(?: -d '(.*)')?$`)
	typed = regexp.MustCompile(`^(\{.*\}) +# typed`)
	inRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9]{3})[^|]* \\| ([^|]+) \\|$")
)

// TestAPI_Examples_AreAsTheSchemasSay: every request and answer in api.md, and every call is shown.
func TestAPI_Examples_AreAsTheSchemasSay(t *testing.T) {
	text, err := os.ReadFile("api.md")
	require.NoError(t, err)
	shown := map[string]bool{}
	for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
		if block[1] != "console" {
			continue
		}
		operation, answer := "", ""
		for line := range strings.Lines(block[2]) {
			switch call := asked.FindStringSubmatch(strings.TrimSpace(line)); {
			case call != nil:
				checkAnswers(t, operation, answer)
				operation, answer = "GET "+call[1], ""
				if call[2] != "" {
					operation = "POST " + call[1]
					err := schematest.API().CheckBody(operation, []byte(call[2]))
					unfit := strings.Contains(block[2], "this bakeryd does not know") || strings.Contains(block[2], " is misspelt")
					require.Equal(t, unfit, err != nil, "%s: %v", call[2], err)
				}
			case strings.Contains(line, "/v1/link"):
				operation, answer = "GET /v1/link", ""
			case strings.HasPrefix(line, "$") || strings.HasPrefix(line, " ") && answer == "" || strings.HasPrefix(line, "HTTP/") || line == "...\n",
				strings.HasPrefix(line, "Content-Type: "), strings.HasPrefix(line, "Warning: "):
			case typed.MatchString(line):
				require.NoError(t, schematest.API().Check("/components/schemas/LinkRequest", []byte(typed.FindStringSubmatch(line)[1])))
			default:
				answer += line
			}
			shown[operation] = true
		}
		checkAnswers(t, operation, answer)
	}
	for _, o := range schematest.Operations() {
		if strings.Contains(o, " /v1/") {
			require.True(t, shown[o], "api.md has no example of %s", o)
		}
	}
}

// checkAnswers checks the answers to a call, of which a stream has several.
func checkAnswers(t *testing.T, operation, text string) {
	t.Helper()
	if operation == "" {
		return
	}
	values := json.NewDecoder(strings.NewReader(text))
	for n := 0; ; n++ {
		var v json.RawMessage
		if err := values.Decode(&v); errors.Is(err, io.EOF) {
			require.Positive(t, n, "%s has no answer", operation)
			return
		} else if err != nil {
			require.NoError(t, err, "%s: %s", operation, text)
		}
		if operation == "GET /v1/link" {
			require.NoError(t, schematest.API().Check("/components/schemas/LockEvent", v))
		} else if statuses := schematest.API().Statuses(operation, v); bytes.HasPrefix(v, []byte(`{"error"`)) {
			require.NotEmpty(t, statuses, "%s: %s", operation, v)
			require.NotContains(t, statuses, "200")
		} else {
			require.NoError(t, schematest.API().CheckAnswer(operation, "200", v))
		}
	}
}

// TestAPI_TableOfCodes_IsThatOfTheDocument: each code with its status and the calls that it may
// refuse.
func TestAPI_TableOfCodes_IsThatOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("api.md")
	require.NoError(t, err)
	rows := inRow.FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		var calls []string
		all := true
		for _, o := range schematest.Operations() {
			_, name, ok := strings.Cut(o, " /v1/")
			if !ok {
				continue
			}
			refusal := []byte(`{"error": {"code": "` + row[1] + `", "message": ""}}`)
			if slices.Contains(schematest.API().Statuses(o, refusal), row[2]) {
				calls = append(calls, name)
			} else {
				all = false
			}
		}
		want := strings.Split(row[3], ", ")
		if all {
			calls = []string{"all"}
		}
		slices.Sort(want)
		slices.Sort(calls)
		require.Equal(t, slices.Compact(calls), want, "code %s, status %s", row[1], row[2])
	}
}
