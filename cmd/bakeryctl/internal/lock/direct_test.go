package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
)

func TestDirect_ValidCommandLine_IsParsed(t *testing.T) {
	t.Setenv("BAKERY_SOCKET", "/run/s")
	o, ok := Direct(strings.Fields("lock -sn -w 1.5 -E7 --on-request TERM --socket=/s x -- sh -c --help"))
	require.True(t, ok)
	require.Equal(t, []any{"x", client.Shared, true, 1500 * time.Millisecond, 7, "/s", "sh -c --help"},
		[]any{o.Name, o.Mode, o.NonBlock, o.Timeout, o.Conflict, o.Socket, o.Command})
	require.Equal(t, []string{"sh", "-c", "--help"}, o.launch.Argv)
	o, ok = Direct(strings.Fields("--socket /t lock -n x -- true"))
	require.True(t, ok)
	require.Equal(t, []any{"x", true, "/t"}, []any{o.Name, o.NonBlock, o.Socket})
	o, ok = Direct(strings.Fields("--socket /t lock --socket /u x -- true"))
	require.True(t, ok)
	require.Equal(t, "/u", o.Socket)
	o, ok = Direct([]string{"lock", "x", "true"})
	require.True(t, ok)
	require.Equal(t, []any{"/run/s", 1}, []any{o.Socket, o.Conflict})
}

func TestDirect_AnythingElse_IsForTheCompleteProgram(t *testing.T) {
	for _, line := range []string{
		"", "--help", "--version", "help lock", "status", "locks", "--socket /s", "--socket /s locks", "--socket", "-n lock x -- true", "__complete lock ",
		"lock", "lock --help", "lock -h", "lock -nh x -- true", "lock x", "lock x --", "lock --nonesuch x -- true", "lock -w never x -- true",
		"lock --device /d x -- true", "lock --device= x -- true", "lock --socket= x -- true", "lock --create x -- true", "lock " + strings.Repeat("x", 300) + " -- true", "lock -s --value v x -- true",
		"lock -x -s x -- true", "lock -E 256 x -- true", "lock --on-request -9 x -- true", "lock x -n -- true",
	} {
		_, ok := Direct(strings.Fields(line))
		require.False(t, ok, line)
	}
}

func TestProgram_CompleteProgram_IsTheOneNextToIt(t *testing.T) {
	for self, want := range map[string]string{"/usr/bin/bakeryctl-full": "/usr/bin/bakeryctl", "/bin/bakeryctl": "/bin/bakeryctl", "/tmp/bench.test": "/tmp/bench.test"} {
		require.Equal(t, want, Program(self))
	}
}
