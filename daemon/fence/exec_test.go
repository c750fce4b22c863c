package fence

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var db3 = Target{Host: 3, Incarnation: 0xabc, Name: "db3.example-1"}

func execAgentOf(t *testing.T, command string) Agent {
	t.Helper()
	a, err := New(Config{Agent: "exec", Command: command})
	require.NoError(t, err)
	return a
}

func TestExecIsTold(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("NOTIFY_SOCKET", "/run/notify")
	t.Setenv("BAKERY_FENCE_HOST", "another")
	require.NoError(t, execAgentOf(t, `cat >stdin; env | grep -E '^(BAKERY_FENCE_|NOTIFY_)' | sort >env; echo all right`).Fence(t.Context(), db3))
	stdin, err := os.ReadFile("stdin")
	require.NoError(t, err)
	require.Equal(t, "action=off\nplug=db3.example-1\nnodename=db3.example-1\nport=db3.example-1\nhost_id=3\nincarnation=0000000000000abc\n", string(stdin))
	env, err := os.ReadFile("env")
	require.NoError(t, err)
	require.Equal(t, "BAKERY_FENCE_ACTION=off\nBAKERY_FENCE_HOST=db3.example-1\nBAKERY_FENCE_HOST_ID=3\nBAKERY_FENCE_INCARNATION=0000000000000abc\n", string(env))
}

func TestExecFails(t *testing.T) {
	for _, tt := range []struct{ name, command, want string }{
		{"exit code", "echo one; echo two >&2; exit 3", "exit status 3: one | two"},
		{"signal", "kill -9 $$", "signal: killed"},
		{"no such command", "/nonexistent/fence 2>/dev/null; x=$?; echo /nonexistent/fence; exit $x", "exit status 127: /nonexistent/fence"},
		{"last lines", "for i in 1 2 3 4 5 6 7; do echo line$i; done; false", "exit status 1: line3 | line4 | line5 | line6 | line7"},
		{"not for a terminal", `printf 'a\033[2Jb\377\n'; false`, "exit status 1: a?[2Jb?"},
		{"reads nothing", "exec <&-; exit 1", "exit status 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := execAgentOf(t, tt.command).Fence(t.Context(), db3)
			require.ErrorIs(t, err, ErrUnconfirmed)
			require.ErrorContains(t, err, `host 3 ("db3.example-1", incarnation 0000000000000abc)`)
			require.True(t, strings.HasSuffix(err.Error(), tt.want), err.Error())
		})
	}
}

func TestExecOutputIsBounded(t *testing.T) {
	err := execAgentOf(t, "head -c 20000000 /dev/zero | tr '\\0' x; echo; head -c 1000000 /dev/zero | tr '\\0' y; exit 1").Fence(t.Context(), db3)
	require.ErrorIs(t, err, ErrUnconfirmed)
	require.Less(t, len(err.Error()), 2000)

	w := &tail{max: 10}
	for _, s := range []string{"abc", "", "defghij", "k", "0123456789ABC"} {
		n, err := w.Write([]byte(s))
		require.NoError(t, err)
		require.Equal(t, len(s), n)
		require.LessOrEqual(t, len(w.kept), w.max)
	}
	require.Equal(t, ": 3456789ABC", w.String())
}

// A hanging command is killed with all processes that it started when ctx ends.
func TestExecHangs(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- execAgentOf(t, `trap '' TERM; sh -c 'trap "" TERM; sleep 1000 & echo $! >child.new; mv child.new child; wait' & wait`).Fence(ctx, db3)
	}()
	child := pidIn(t, "child")
	cancel()
	err := <-done
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, ErrUnconfirmed)
	requireGone(t, child)
}

// A background process of the command does not block Fence, and is ended too.
func TestExecLeavesChildren(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, execAgentOf(t, `sleep 1000 & echo $! >child`).Fence(t.Context(), db3))
	requireGone(t, pidIn(t, "child"))

	// A process outside the group keeps the output open. Fence waits for it for outputWait only.
	require.NoError(t, execAgentOf(t, `setsid sh -c 'echo $$ >stray.new; mv stray.new stray; exec sleep 1000' & while ! test -e stray; do :; done`).Fence(t.Context(), db3))
	stray := pidIn(t, "stray")
	require.NoError(t, unix.Kill(stray, unix.SIGKILL))
}

func pidIn(t *testing.T, path string) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	return pid
}

// requireGone waits until a process has ended; its new parent may be slow to reap it.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ") || strings.Contains(string(stat), ") X ")
	}, 30*time.Second, 5*time.Millisecond)
}

func TestExecNames(t *testing.T) {
	t.Chdir(t.TempDir())
	a := execAgentOf(t, `touch run; eval echo $BAKERY_FENCE_HOST`)
	for _, name := range []string{
		"", "db1\naction=on", "db1\rplug=db2", "db1;touch bad", "$(touch bad)", "`touch bad`", "db1 db2", "--all", "*", "db\x001", "db\u20281", "dß", "../x",
	} {
		require.ErrorIs(t, a.Fence(t.Context(), Target{Host: 3, Name: name}), ErrTarget, "%q", name)
	}
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, files, "nothing was run")
	for _, name := range []string{"db1", "3", "a_b-c.example.com", "fe80::1"} {
		require.NoError(t, ValidName(name))
	}
}
