//go:build integration

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTokensGrow over everything that can happen to the hosts of a lock.
func TestTokensGrow(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector)
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
		// Another machine takes the id over.
		c := s.machine("1")
		c.up()
		grant(c)
	})
}

func TestCommandKnowsItsLock(t *testing.T) {
	t.Parallel()
	h := newSpace(t, 512).host(3)
	r := h.lock("a/b c", "--", "sh", "-c", `echo "$BAKERY_LOCK,$BAKERY_HOST_ID"; cat`)
	require.Equal(t, result{0, "a/b c,3\n", "", r.took}, r)
	p := h.takeFor("x", `cat; exit 5`) // standard input is the command's
	_, err := fmt.Fprintln(p.stdin, "hello")
	require.NoError(t, err)
	require.Equal(t, "hello", p.line())
	require.NoError(t, p.stdin.Close())
	p.exits(5)
}

// TestCrashOfTheDaemon: the command of a host whose bakeryd is gone is
// stopped; others wait, until that host is back.
func TestCrashOfTheDaemon(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector)
		a, b := s.host(1), s.host(2)
		holder := a.take("x")
		first := holder.entered()
		b.settles(a, "x")
		next := b.take("x")
		b.sees(b, "x")
		a.crash()
		holder.exits(75)
		require.Contains(t, holder.said(), `stopping the command under "x"`)
		require.True(t, holder.silent() || eventuallySilent(holder))
		require.Equal(t, 69, a.lock("x", "--", "true").code)
		next.outside()
		a.up()
		require.Greater(t, next.entered(), first)
		next.letGo()
		require.Zero(t, a.lock("-w", "20", "x", "--", "true").code)
	})
}

func eventuallySilent(p *process) bool {
	eventually(p.t, "the command is gone", p.silent)
	return true
}

// TestStoppedDaemon: a bakeryd that stands still for longer than its lease
// cannot tell its wrapper, who stops the command by itself.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512, "--lease", "1s")
	a := s.host(1)
	// It ignores SIGTERM, so that it takes SIGKILL at the end of the lease.
	holder := a.takeFor("x", `trap '' TERM; echo $BAKERY_TOKEN; while :; do read line; done`)
	holder.entered()
	a.signal(syscall.SIGSTOP)
	holder.exits(75)
	eventually(t, "the command is gone", holder.silent)
	a.signal(syscall.SIGCONT)
	a.exits(75)
	require.Contains(t, a.said(), "the lease ran out")
}
