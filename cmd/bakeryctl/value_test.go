package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestShowable(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:80":      "10.0.0.1:80",
		"two\nlines\n":     "two\nlines",
		"\x1b[2Jgone":      `"\x1b[2Jgone"`,
		"\xff":             `"\xff"`,
		"a\rb":             `"a\rb"`,
		"Grüße, 世界\tthere": "Grüße, 世界\tthere",
	} {
		require.Equal(t, want, showable(text), text)
	}
}

// TestValueAtATerminal: there a newline follows the bytes, and they give it no orders.
func TestValueAtATerminal(t *testing.T) {
	b := serve(t, holding)
	b.Answer("GET /v1/value", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "x", "value": []byte("\x1b[2J"), "token": token, "host": 3})
	})
	x := onTerminal(t, "--socket", b.Socket, "value", "get", "x")
	x.await(`"\x1b[2J"` + "\r\n")
}

// someHold is a hold of which only the token matters.
type someHold struct{ held }

func (someHold) Token() layout.Ticket { return token }

// TestEnvironmentOfTheCommand: what reaches the hold is of the innermost lock.
func TestEnvironmentOfTheCommand(t *testing.T) {
	t.Setenv(envSession, "of the one around")
	t.Chdir("/")
	l := launch{lock: "x"}
	h := &grant{held: someHold{}, hostID: 7}
	find := func(env []string, name string) (value string, n int) {
		for _, v := range env {
			if rest, ok := strings.CutPrefix(v, name+"="); ok {
				value, n = rest, n+1
			}
		}
		return value, n
	}
	if v, n := find(l.environment(h), envSession); n != 0 {
		t.Errorf("session %q of another hold", v)
	}
	h.session, h.socket = "of this", "run/sock"
	env := l.environment(h)
	if v, n := find(env, envSession); v != "of this" || n != 1 {
		t.Errorf("session %q, %d times", v, n)
	}
	if v, _ := find(env, envSocket); v != "/run/sock" {
		t.Errorf("socket %q, for a command that goes elsewhere", v)
	}
}
