package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/page"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/schematest"
)

// TestEveryCallSaysWhatItIs: no call can be added without an action, and no body is read without
// decode.
func TestEveryCallSaysWhatItIs(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	registered, bodies := 0, 0
	var patterns []string // of the calls in the API
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					s, ok := n.Fun.(*ast.SelectorExpr)
					if !ok || s.Sel.Name != "Handle" && s.Sel.Name != "HandleFunc" {
						break
					}
					registered++
					if f.Name.Name == "register" {
						break
					}
					pattern := ""
					ast.Inspect(n.Args[0], func(n ast.Node) bool {
						if text, ok := n.(*ast.BasicLit); ok {
							pattern += text.Value
						}
						return true
					})
					// The patterns of looks for pages have no method.
					require.True(t, strings.HasPrefix(pattern, `"GET `) || f.Name.Name == "looks" && !strings.Contains(pattern, " "),
						"%s, %s registers %s: what may change something is a call of calls.go", name, f.Name.Name, pattern)
					if strings.HasPrefix(pattern, `"GET /`) {
						patterns = append(patterns, strings.Trim(pattern, `"`))
					}
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "r" && n.Sel.Name == "Body" {
						bodies++
						require.Equal(t, "decode", f.Name.Name, "%s reads a body without decode, which checks the access", name)
					}
				}
				return true
			})
		}
	}
	require.GreaterOrEqual(t, registered, 5)
	require.Equal(t, 1, bodies)
	s := New(Config{Log: slog.New(slog.DiscardHandler)})
	for _, c := range s.calls() {
		patterns = append(patterns, c.pattern)
		require.GreaterOrEqual(t, c.action, access.Look, c.pattern)
		require.LessOrEqual(t, c.action, access.Floor, c.pattern)
		if c.action == access.Look {
			require.True(t, strings.HasPrefix(c.pattern, "GET "), c.pattern)
		}
	}
	patterns = append(patterns, "GET /", "GET "+page.Below+"status")
	require.ElementsMatch(t, schematest.Operations(), patterns, "operations.go describes every call, and no other")
}

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
		unknown, err := byJSON.parseJSON(text)
		require.NoError(t, err, "%q", text)
		require.Empty(t, unknown)
		require.Equal(t, byJSON, byHand, "%q", text)
		require.NotEqual(t, byHand.Lock == nil, byHand.Unlock == nil)
	})
}

// TestParseEventsRequest_BadValue_NamesTheWantedOnes.
func TestParseEventsRequest_BadValue_NamesTheWantedOnes(t *testing.T) {
	const wantLimit = "want a whole number from 0 (all) to 10000"
	for query, message := range map[string]string{
		"limit=x":        `limit="x": ` + wantLimit,
		"limit=-1":       `limit="-1": ` + wantLimit,
		"limit=10001":    `limit="10001": ` + wantLimit,
		"limit=":         `limit="": ` + wantLimit,
		"since=x":        `since="x": want a whole number from 0, the seq of an event`,
		"from=yesterday": `from="yesterday": want a time such as 2006-01-02T03:12:00Z or 2006-01-02T03:12:00.5+01:00`,
		"until=03:12":    `until="03:12": want a time such as 2006-01-02T03:12:00Z or 2006-01-02T03:12:00.5+01:00`,
		"follow=yes":     `follow="yes": want 0 or 1`,
		"x=1":            `x="1": there is no such parameter`,
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = parseEventsRequest(q)
		require.EqualError(t, err, "invalid request: "+message)
	}
}

// FuzzEventsQuery: the query of GET /v1/events is refused, or bounded.
func FuzzEventsQuery(f *testing.F) { // 20000x
	for _, seed := range []string{"name=x&since=1&limit=3", "limit=10000", "limit=-1", "from=2026-11-21T03:12:00.5Z&until=2026-11-21T03:12:00%2B01:00", "follow=true&follow=0", "name=%1b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		r, err := parseEventsRequest(q)
		if err != nil {
			require.ErrorIs(t, err, api.ErrInvalid)
			return
		}
		require.GreaterOrEqual(t, r.limit, 0)
		require.LessOrEqual(t, r.limit, maxLast)
		if q.Has("name") {
			require.NoError(t, layout.ValidateLockName(r.Lock))
		}
	})
}
