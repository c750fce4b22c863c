package call

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/test/calltest"
)

func TestFailure_EveryCode_HasTheExitCodeOfTheManual(t *testing.T) {
	want := map[string]int{
		api.CodeInvalid: cli.ExitUsage, api.CodeForbidden: cli.ExitForbidden, api.CodeBusy: cli.ExitConflict, api.CodeTimeout: cli.ExitConflict,
		api.CodeFull: cli.ExitNoDevice, api.CodePermits: cli.ExitUnavailable, api.CodeFree: cli.ExitConflict, api.CodeMissing: cli.ExitConflict,
		api.CodeUnavailable: cli.ExitUnavailable, api.CodeUnconfirmed: cli.ExitUnavailable, api.CodeLost: cli.ExitLost,
		api.CodeCoherenceCheck: cli.ExitUnavailable, api.CodeValue: cli.ExitConflict, api.CodeUpgrade: cli.ExitConflict, api.CodeDevice: cli.ExitNoDevice,
	}
	require.Len(t, want, len(api.Codes()))
	for _, code := range api.Codes() {
		f := Failure(fmt.Errorf("lock %q: %w", "x", &api.Error{Code: code, Message: "no", Hint: "wait"}))
		require.Equal(t, want[code], f.Code, code)
		require.Equal(t, "wait", f.Hint)
		require.EqualError(t, f, `lock "x": no`)
	}
}

func TestFailure_NoAnswer_HasAHint(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		hint string
	}{
		{fmt.Errorf("%w: %w", client.ErrUnreachable, syscall.ENOENT), cli.ExitUnavailable, hintDown},
		{fmt.Errorf("%w: %w", client.ErrUnreachable, syscall.EACCES), cli.ExitUnavailable, closedHint(nil)},
		{client.ErrProtocol, cli.ExitUnavailable, ""},
		{client.ErrLost, cli.ExitLost, ""},
		{client.ErrTimeout, cli.ExitConflict, ""},
	} {
		f := Failure(test.err)
		require.Equal(t, test.code, f.Code, test.err)
		require.Equal(t, test.hint, f.Hint, test.err)
	}
}

func TestJoinHint_Socket_NamesItsGroupAndTheUser(t *testing.T) {
	const groups = "root:x:0:\nbakery:x:990:alice\nlocks:x:991:\n"
	for gid, want := range map[int]string{
		991: "the socket is for root and bakeryd's own user, and group locks; as root: run usermod -aG locks bob, then log in again",
		-1:  "the socket is for root and bakeryd's own user, and group bakery; as root: run usermod -aG bakery bob, then log in again",
		7:   "the socket is for root and bakeryd's own user, and group 7; as root: run usermod -aG 7 bob, then log in again",
		0:   "the socket is for root and bakeryd's own user only: run the command as root",
	} {
		require.Equal(t, want, joinHint(gid, groups, "bob"))
	}
	require.Equal(t, "bob", nameOf(1001, "alice:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n"))
}

// TestClosedHint_Error_NamesTheGroupOfItsSocket: a file stands for the socket.
func TestClosedHint_Error_NamesTheGroupOfItsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	var info syscall.Stat_t
	require.NoError(t, syscall.Stat(path, &info))
	groups, err := os.ReadFile("/etc/group")
	require.NoError(t, err)
	refused := &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: path, Net: "unix"}, Err: os.NewSyscallError("connect", syscall.EACCES)}
	hint := Failure(fmt.Errorf("%w: %w", client.ErrUnreachable, refused)).Hint
	before, _, _ := strings.Cut(joinHint(int(info.Gid), string(groups), "bob"), " bob,")
	require.Contains(t, hint, before)
}

func TestAsk_NoBakeryd_IsUnreachable(t *testing.T) {
	err := OrDevice(Ask(t.Context(), t.TempDir()+"/none", "GET", "/v1/locks", nil, nil))
	require.ErrorIs(t, err, client.ErrUnreachable)
	var f *cli.Failure
	require.True(t, errors.As(err, &f))
	require.Equal(t, hintDown+orDevice, f.Hint)
}

func TestAsk_Answer_IsDecoded(t *testing.T) {
	s := calltest.Serve(t, 200, `{"a":7}`)
	var answer struct{ A int }
	require.NoError(t, Ask(t.Context(), s.Socket, "POST", "/v1/x", map[string]int{"b": 1}, &answer))
	require.Equal(t, 7, answer.A)
	require.Equal(t, "POST /v1/x", <-s.Asked)
}
