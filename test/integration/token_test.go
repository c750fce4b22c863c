//go:build integration

package integration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func requireGrowing(t *testing.T, words []string) {
	t.Helper()
	var last layout.Ticket
	for _, word := range words {
		var token layout.Ticket
		require.NoError(t, token.UnmarshalText([]byte(word)))
		require.Greater(t, token, last)
		last = token
	}
}

// TestTokensGrow across all events of a lock's hosts.
func TestTokensGrow(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		a, b := s.host(1), s.host(2)
		var tokens []string
		grant := func(h *host) {
			t.Helper()
			r := h.lock("x", "--", "sh", "-c", `echo $BAKERY_TOKEN`)
			require.Zero(t, r.code, r.stderr)
			tokens = append(tokens, strings.TrimSpace(r.stdout))
			requireGrowing(t, tokens)
		}
		grant(a)
		grant(b)
		grant(a)
		a.leave()
		grant(b)
		a.up()
		grant(a)
		a.crash()
		grant(b)
		a.up()
		grant(a)
		grant(b)
		a.leave()
		b.leave()
		b.up()
		grant(b)
		// Another machine takes over the id.
		c := s.machine("1")
		c.up()
		grant(c)
	})
}
