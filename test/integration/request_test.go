//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/standstill"
)

func TestGivingUp(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		a, b, c := s.host(1), s.host(2), s.host(3)
		for _, h := range []*host{a, b} {
			require.Zero(t, h.lock("-n", "x", "--", "true").code)
		}
		holder, _ := a.holds("x")
		ran := filepath.Join(s.dir, "ran")
		for _, h := range []*host{a, b} { // on both hosts
			for _, x := range []struct {
				args    []string
				code    int
				atLeast time.Duration
			}{
				{[]string{"-q", "-n"}, 1, 0},
				{[]string{"-q", "-w", "0"}, 1, 0},
				{[]string{"-q", "-n", "-E", "9"}, 9, 0},
				{[]string{"-q", "-w", "0.3"}, 1, 300 * time.Millisecond},
				{[]string{"-q", "-w", "300ms", "-E", "0"}, 0, 300 * time.Millisecond},
				{[]string{"-q", "-s", "-w", "0.3", "-E", "9"}, 9, 300 * time.Millisecond},
			} {
				r := h.lock(append(x.args, "x", "--", "touch", ran)...)
				require.Equal(t, result{x.code, "", "", r.took}, r, "%q", x.args)
				require.GreaterOrEqual(t, r.took, x.atLeast)
			}
			require.Regexp(t, `^bakeryctl: "x" is not free(: held by .* \(host 1\), pid .*)?\n$`, h.lock("-n", "x", "--", "touch", ran).stderr)
		}
		require.NoFileExists(t, ran)
		// A waiter that gives up does not delay the waiters behind it.
		hasty := b.take("x", "-w", fmt.Sprint(standstill.Outlives(500*time.Millisecond).Seconds()))
		a.sees(b, "x")
		behind := c.take("x")
		a.sees(c, "x")
		hasty.exits(1)
		eventually(t, "only host 3 waits", func() bool { return len(a.report("x").Queue) == 1 })
		holder.letGo()
		behind.entered()
		behind.letGo()
		a.free("x")
	})
}

func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	a, b := s.host(1), s.host(2)
	holder, _ := a.holds("x")
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		w := b.take("x")
		a.sees(b, "x")
		w.signal(signal)
		w.exits(code)
		eventually(t, "no client waits", func() bool { return len(a.report("x").Queue) == 0 && len(b.report("x").Local) == 0 })
		require.Empty(t, w.said())
	}
	w := b.take("x")
	a.sees(b, "x")
	w.signal(syscall.SIGKILL)
	eventually(t, "no client waits", func() bool { return len(a.report("x").Queue) == 0 && len(b.report("x").Local) == 0 })
	holder.letGo()
}

// TestKilledWrapper: the lock is held until the command and its children have ended.
func TestKilledWrapper(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		a, b := s.host(1), s.host(2)
		// The shell ends immediately, its child when standard input ends.
		holder := a.takeFor("x", `exec 3<&0; (read line <&3) & echo $BAKERY_TOKEN`)
		first := holder.entered()
		b.settles(a, "x")
		for _, local := range []bool{false, true} {
			h := map[bool]*host{false: b, true: a}[local]
			require.Equal(t, 1, h.lock("-w", "0.3", "x", "--", "true").code)
		}
		next := b.take("x")
		a.sees(b, "x")
		require.True(t, holder.running() || holder.cmd.ProcessState.ExitCode() == 0)
		next.outside()
		require.NoError(t, holder.stdin.Close())
		require.Greater(t, next.entered(), first)

		// The same when the wrapper is killed while the command runs.
		behind := a.take("x")
		b.sees(a, "x")
		next.signal(syscall.SIGKILL)
		next.exits(-1)
		require.Equal(t, 1, a.lock("-w", "0.3", "x", "--", "true").code)
		behind.outside()
		require.False(t, next.silent())
		require.NoError(t, next.stdin.Close())
		behind.entered()
		behind.letGo()
		b.free("x")
	})
}

// TestClose: with --close the lock is released when the command ends.
func TestClose(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	a, b := s.host(1), s.host(2)
	for _, flag := range []string{"-o", "--close"} {
		p := a.takeFor("x", `exec 3<&0; (read line <&3) & echo $BAKERY_TOKEN`, flag)
		p.entered()
		p.exits(0)
		require.Zero(t, b.lock("-w", "120", "x", "--", "true").code)
		require.False(t, p.silent(), "what the command left running still runs")
	}
	// Also when the wrapper is killed and the command continues.
	p, _ := a.holds("x", "-o")
	p.signal(syscall.SIGKILL)
	require.Zero(t, b.lock("-w", "120", "x", "--", "true").code)
	require.False(t, p.silent())
}
