package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
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

// On a terminal a newline follows the value, and control characters are quoted.
func TestValueGet_Terminal_QuotesControlCharacters(t *testing.T) {
	b := serve(t, holding)
	b.Answer("GET /v1/value", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "x", "value": []byte("\x1b[2J"), "token": token, "host": 3})
	})
	x := onTerminal(t, "--socket", b.Socket, "value", "get", "x")
	x.await(`"\x1b[2J"` + "\r\n")
}
