//go:build integration

package integration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestModeAndValueOverARestart: bakeryd ends and is started again. It knows how its command holds the lock by then, and
// what the command asks for meanwhile is done when it is back.
func TestModeAndValueOverARestart(t *testing.T) {
	t.Parallel()
	s := briefSpace(t, "--lease", "30s")
	a, b := s.host(1), s.host(2)
	script := strings.ReplaceAll(`ctl mode shared && echo shared
		read line
		ctl mode exclusive && ctl value set alone && echo alone
		read line`, "ctl", a.programs.bakeryctl)
	p := a.takeFor("x", script)
	require.Equal(t, "shared", p.line())
	a.crash()
	a.up()
	holders := a.report("x").Holders
	require.Len(t, holders, 1)
	require.Equal(t, layout.Shared, holders[0].Mode)
	require.Equal(t, 0, b.lock("-n", "-s", "x", "--", "true").code)
	require.Equal(t, 1, b.lock("-n", "x", "--", "true").code)

	a.crash()
	_, err := p.stdin.WriteString("\n")
	require.NoError(t, err)
	a.up()
	require.Equal(t, "alone", p.line())
	require.Equal(t, 1, b.lock("-n", "-s", "x", "--", "true").code)
	r := b.ctl("value", "get", "x")
	require.Equal(t, 0, r.code)
	require.Equal(t, "alone", r.stdout)
	p.letGo()
	require.Empty(t, p.said(), "nobody noticed")
	require.Equal(t, 0, b.lock("-n", "x", "--", "true").code)
	require.Equal(t, "alone", b.ctl("value", "get", "x").stdout)
}
