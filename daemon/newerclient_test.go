package daemon

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/daemon/warn"
)

const ignoresColour = `this bakeryd does not know, and ignores, the member "colour" of the request: check the spelling, or update bakeryd`

// TestNewerClient_Call_IsWarned: a call works without the members that this bakeryd does not know, and
// the log has one line, however often that happens.
func TestNewerClient_Call_IsWarned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log bytes.Buffer
		s := serveSocket(t, newCluster(t, 8, 4).host(1), func(cfg *server.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		create := func(body string) (status int, warning string) {
			c, r := s.calls.request(t, s.srv, "POST", "/v1/create", body)
			defer c.Close()
			return r.StatusCode, r.Header.Get("Warning")
		}
		status, warning := create(`{"name": "x"}`)
		require.Equal(t, []any{200, ""}, []any{status, warning})
		for range 3 {
			status, warning = create(`{"name": "x", "colour": "red", "permits": 1}`)
			require.Equal(t, 200, status)
			require.Equal(t, `299 - "`+strings.ReplaceAll(ignoresColour, `"`, `\"`)+`"`, warning)
		}
		status, warning = create(`{"name": "x", "colour": "red", "permits": 2}`)
		require.Equal(t, http.StatusConflict, status, "the other members count")
		require.Contains(t, warning, "colour", "also if the call is refused")
		require.Equal(t, 1, strings.Count(log.String(), "members of a request are not known and ignored"), log.String())
		require.Contains(t, log.String(), `call="POST /v1/create"`)
		time.Sleep(warn.Every)
		create("{\"name\": \"x\", \"\\u001b[2J\\u202e\": 1}")
		require.Equal(t, 2, strings.Count(log.String(), "members of a request are not known and ignored"), log.String())
		require.NotContains(t, log.String(), "\x1b")
		require.NotContains(t, log.String(), "\u202e")
	})
}

// TestNewerClient_UnknownCondition_KeepsTheLock: this bakeryd would remove a lock that a newer client
// wants to keep.
func TestNewerClient_UnknownCondition_KeepsTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 4).host(1))
		require.NoError(t, acquire(t, s.d, locks.Request{Name: "x"}).Release())
		for _, condition := range []string{`"if_unused_since": "2026-01-01T00:00:00Z"`, `"require_owner": "db2"`, `"If_Unused_Since": null`} {
			status, answer := s.call("POST /v1/remove", `{"name": "x", "if_no_value": true, `+condition+`}`)
			require.Equal(t, 400, status)
			require.Contains(t, answer, `"code":"invalid"`)
			require.Contains(t, answer, "which this bakeryd does not know")
			require.Contains(t, answer, `"hint":"update bakeryd on this host; a condition is never ignored"`)
			_, answer = s.call("GET /v1/locks", "")
			require.Contains(t, answer, `"x"`)
		}
		for call, body := range map[string]string{
			"POST /v1/remove": `{"name": "x", "dry_run": true}`,
			"POST /v1/evict":  `{"host": 2, "incarnation": "0000000000000007", "dry_run": true}`,
		} {
			status, answer := s.call(call, body)
			require.Equal(t, 400, status, "it cannot be undone")
			require.Contains(t, answer, `the request has the member \"dry_run\", which this bakeryd does not know`)
			require.Contains(t, answer, "check the spelling, or update bakeryd")
		}
		status, _ := s.call("POST /v1/remove", `{"name": "x", "if_no_value": true}`)
		require.Equal(t, 200, status)
	})
}

// TestRemove_ConditionInAnotherForm_KeepsTheValue: null and another case are no removal without a
// condition.
func TestRemove_ConditionInAnotherForm_KeepsTheValue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 4).host(1))
		h := acquire(t, s.d, locks.Request{Name: "x"})
		require.NoError(t, h.SetValue(t.Context(), []byte("v")))
		require.NoError(t, h.Release())
		for body, message := range map[string]string{
			`{"name": "x", "if_no_value": null}`: `member \"if_no_value\" is null, want true or false`,
			`{"name": "x", "If_No_Value": true}`: `member \"If_No_Value\" is misspelt, want \"if_no_value\"`,
			`{"name": "x", "IF_NO_VALUE": null}`: `member \"IF_NO_VALUE\" is misspelt, want \"if_no_value\"`,
		} {
			status, answer := s.call("POST /v1/remove", body)
			require.Equal(t, 400, status, body)
			require.Contains(t, answer, message, body)
		}
		status, answer := s.call("GET /v1/value?name=x", "")
		require.Equal(t, 200, status)
		require.Contains(t, answer, `"value": "dg=="`)
	})
}

// TestNewerClient_Stream_BeginsWithAWarning: and a refusal keeps its status.
func TestNewerClient_Stream_BeginsWithAWarning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 1).host(1))
		c, r := s.post(`{"colour": "red", "name": "x"}`)
		defer c.Close()
		e := nextEvent(t, r)
		require.Equal(t, []string{api.Warning, ignoresColour}, []string{e.Kind, e.Message})
		require.Equal(t, api.Granted, nextEvent(t, r).Kind)
		require.Contains(t, r.Header.Get("Warning"), "colour")
		c2, r2 := s.post(`{"name": "no room", "colour": "red"}`)
		defer c2.Close()
		require.Equal(t, http.StatusInsufficientStorage, r2.StatusCode)
	})
}

// TestNewerClient_Link_IsWarnedOfEachLine: the line works, but for one that asks for nothing known.
func TestNewerClient_Link_IsWarnedOfEachLine(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	l := s.link(`{"lock": {"name": "x", "colour": {"a": [1]}}, "trace": 5}`)
	e := l.next()
	require.Equal(t, []string{api.Warning, strings.Replace(ignoresColour, `"colour"`, `"trace", "colour"`, 1)}, []string{e.Kind, e.Message})
	granted := l.until(api.Granted)
	l.say(`{"unlock": "` + granted.Token.String() + `", "colour": 1}`)
	require.Equal(t, ignoresColour, l.until(api.Warning).Message)
	l.until(api.Released)
	for _, bad := range []string{`{"renew": 1}`, `{"lock": {"name": "x", "require_fencing": true}}`, `{"lock": {"name": "x"}, "if_first": true}`, `{"lock": null}`} {
		l.say(bad)
		e := l.next()
		require.Equal(t, []string{api.Refused, api.CodeInvalid}, []string{e.Kind, e.Code}, bad)
	}
	l.say(`{"lock":{"name":"x"}}`)
	l.until(api.Granted)
}

// TestNewerClient_GoClient_PassesTheWarningOn: to the function of the context.
func TestNewerClient_GoClient_PassesTheWarningOn(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	var warnings []string
	ctx := client.WithWarnings(t.Context(), func(message string) { warnings = append(warnings, message) })
	c := client.New(s.path)
	require.NoError(t, c.Call(ctx, "POST", "/v1/create", map[string]any{"name": "x", "colour": "red"}, new(struct{})))
	require.Equal(t, []string{ignoresColour}, warnings)
	_, _, err := c.Create(ctx, "x", 1)
	require.NoError(t, err)
	require.Error(t, c.Call(ctx, "POST", "/v1/create", map[string]any{"name": "x", "permits": 2, "colour": "red"}, new(struct{})))
	require.Equal(t, []string{ignoresColour, ignoresColour}, warnings, "also with a refusal")
}
