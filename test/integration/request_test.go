//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/standstill"
)

func TestGivingUp(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector)
		a, b, c := s.host(1), s.host(2), s.host(3)
		for _, h := range []*host{a, b} {
			require.Zero(t, h.lock("-n", "x", "--", "true").code)
		}
		holder := a.take("x")
		holder.entered()
		ran := filepath.Join(s.dir, "ran")
		for _, h := range []*host{a, b} { // at home and elsewhere
			for _, x := range []struct {
				args    []string
				code    int
				atLeast time.Duration
			}{
				{[]string{"-n"}, 1, 0},
				{[]string{"-w", "0"}, 1, 0},
				{[]string{"-n", "-E", "9"}, 9, 0},
				{[]string{"-w", "0.3"}, 1, 300 * time.Millisecond},
				{[]string{"-w", "300ms", "-E", "0"}, 0, 300 * time.Millisecond},
				{[]string{"-s", "-w", "0.3", "-E", "9"}, 9, 300 * time.Millisecond},
			} {
				r := h.lock(append(x.args, "x", "--", "touch", ran)...)
				require.Equal(t, result{x.code, "", "", r.took}, r, "%q", x.args)
				require.GreaterOrEqual(t, r.took, x.atLeast)
			}
		}
		require.NoFileExists(t, ran)
		// Who gives up does not hold up who stands behind it.
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
	holder := a.take("x")
	holder.entered()
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		w := b.take("x")
		a.sees(b, "x")
		w.signal(signal)
		w.exits(code)
		eventually(t, "nobody waits", func() bool { return len(a.report("x").Queue) == 0 && len(b.report("x").Local) == 0 })
		require.Empty(t, w.said())
	}
	w := b.take("x")
	a.sees(b, "x")
	w.signal(syscall.SIGKILL)
	eventually(t, "nobody waits", func() bool { return len(a.report("x").Queue) == 0 && len(b.report("x").Local) == 0 })
	holder.letGo()
}

// TestKilledWrapper: the lock stays until the command, and what it left
// running, has ended.
func TestKilledWrapper(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector)
		a, b := s.host(1), s.host(2)
		// The shell ends at once, its child when standard input does.
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

		// The same with a wrapper that is killed while the command runs.
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

// TestClose: with --close the lock goes when the command ends.
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
	// And when the wrapper is killed, whatever becomes of the command.
	p := a.take("x", "-o")
	p.entered()
	p.signal(syscall.SIGKILL)
	require.Zero(t, b.lock("-w", "120", "x", "--", "true").code)
	require.False(t, p.silent())
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	h := s.host(1)
	plainFile := filepath.Join(s.dir, "plain")
	require.NoError(t, os.WriteFile(plainFile, []byte("echo\n"), 0o644))
	for _, x := range []struct {
		code int
		argv []string
		said string
	}{
		{0, []string{"true"}, ""},
		{1, []string{"false"}, ""},
		{77, []string{"sh", "-c", "exit 77"}, ""},
		{255, []string{"sh", "-c", "exit 255"}, ""},
		{128 + 9, []string{"sh", "-c", "kill -KILL $$"}, ""},
		{128 + 15, []string{"sh", "-c", "kill -TERM $$"}, ""},
		{128 + 10, []string{"sh", "-c", "kill -USR1 $$"}, ""},
	} {
		r := h.lock(append([]string{"x", "--"}, x.argv...)...)
		require.Equal(t, result{x.code, "", x.said, r.took}, r, "%q", x.argv)
	}
	// What cannot be run is found out before the lock is waited for.
	holder := h.take("x")
	holder.entered()
	for _, x := range []struct {
		code    int
		command string
		said    string
	}{
		{127, "no-such-command", "command not found"},
		{127, filepath.Join(s.dir, "nothing"), "command not found"},
		{126, plainFile, "permission denied"},
		{126, s.dir, "is a directory"},
	} {
		r := h.lock("x", "--", x.command)
		require.Equal(t, x.code, r.code, r.stderr)
		require.Contains(t, r.stderr, "bakeryctl: "+x.command+": ")
		require.Contains(t, r.stderr, x.said)
	}
	require.Equal(t, 1, h.lock("-w", "0.1", "x", "--", "true").code)
	holder.letGo()
	r := execute(t, plain.bakeryctl, "--socket", s.dir+"/none", "lock", "x", "--", "true")
	require.Equal(t, 69, r.code)
	require.Contains(t, r.stderr, "is bakeryd running?")
}

// TestSignalsReachTheCommand: those sent to bakeryctl are passed on.
func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	h := newSpace(t, 512).host(1)
	for signal, name := range map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGUSR1: "USR1"} {
		p := h.takeFor("x", `trap 'echo got `+name+`; exit 3' `+name+`; echo $BAKERY_TOKEN; while :; do sleep 0.01; done`)
		p.entered()
		p.signal(signal)
		require.Equal(t, "got "+name, p.line())
		p.exits(3)
	}
	require.Zero(t, h.lock("-n", "x", "--", "true").code)
}

func TestNames(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512, "--locks", "6")
	a, b := s.host(1), s.host(2)
	for _, x := range []struct{ name, said string }{
		{"", "lock name"},
		{strings.Repeat("n", 129), "128"},
		{"a\xffb", "UTF-8"},
		{"a\nb", "control character"},
		{"a\x7fb", "control character"},
	} {
		r := a.lock(x.name, "--", "true")
		require.Equal(t, 64, r.code, "%q", x.name)
		require.Contains(t, r.stderr, x.said)
		require.NotContains(t, r.stderr, "\x7f")
	}
	require.Empty(t, a.status().Locks)
	for _, name := range []string{"a/b/../c", "two words", "größe ☃", strings.Repeat("n", 128), "*"} {
		holder := a.take(name)
		holder.entered()
		require.Equal(t, 1, b.lock("-n", name, "--", "true").code, "%q", name)
		holder.letGo()
		require.Zero(t, b.lock("-w", "120", name, "--", "true").code)
	}
}

func TestFullDirectory(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector, "--locks", "2")
		a, b := s.host(1), s.host(2)
		require.Zero(t, a.lock("one", "--", "true").code)
		require.Zero(t, b.lock("two", "--", "true").code)
		for _, h := range []*host{a, b} {
			r := h.lock("three", "--", "true")
			require.Equal(t, 66, r.code)
			require.Contains(t, r.stderr, "all 2 entries are taken")
			require.Contains(t, r.stderr, "hint: ")
		}
		require.Zero(t, a.lock("two", "--", "true").code)
		require.Len(t, b.status().Locks, 2)
	})
}

// TestFirstUseAtOnce: a lock that all hosts use for the first time at one
// moment is made once.
func TestFirstUseAtOnce(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512, leased(10*time.Second))
	hosts := s.hosts(4)
	path := filepath.Join(s.dir, "n")
	for _, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, os.WriteFile(path, []byte("0\n"), 0o600))
		var all []*process
		for _, h := range hosts {
			all = append(all, h.takeFor(name, `n=$(cat `+path+`); sleep 0.01; echo $((n + 1)) >`+path))
		}
		for _, p := range all {
			p.exits(0)
		}
		n, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "4\n", string(n))
	}
	require.Len(t, hosts[0].status().Locks, 4)
}
