package call

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/test/calltest"
	"github.com/bakeryd/bakeryd/test/logtest"
	"github.com/bakeryd/bakeryd/test/processtest"
)

// short gives up almost immediately.
func short(t *testing.T, out *logtest.Log) context.Context {
	return cli.Patience{Out: out, Notice: time.Millisecond, Limit: 2 * time.Millisecond}.With(t.Context())
}

// silentServer returns the socket of a server that accepts no connection, as one that is stopped.
func silentServer(t *testing.T) string {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return socket
}

func TestAsk_SilentServer_IsNoAnswer(t *testing.T) {
	t.Parallel()
	var out logtest.Log
	socket := silentServer(t)
	err := OrDevice(Ask(short(t, &out), socket, "GET", "/v1/locks", nil, nil))
	require.ErrorIs(t, err, client.ErrNoAnswer)
	require.EqualError(t, err, fmt.Sprintf("bakeryd is unreachable: no answer on %s within 2ms: its process %d hangs", socket, os.Getpid()))
	var f *cli.Failure
	require.True(t, errors.As(err, &f))
	require.Equal(t, hintSilent+orDevice, f.Hint)
	require.Equal(t, cli.ExitUnavailable, f.Code)
	require.Equal(t, "bakeryctl: bakeryd does not answer on "+socket+", waiting\n", out.String())
}

// TestWatch_WithoutGive_HasNoLimit: a request for a lock may wait for long.
func TestWatch_WithoutGive_HasNoLimit(t *testing.T) {
	t.Parallel()
	var out logtest.Log
	socket := silentServer(t)
	ctx := short(t, &out)
	over := Watch(ctx, socket, Busy(socket), nil)
	defer over()
	require.Eventually(t, func() bool { return out.String() != "" }, time.Minute, time.Millisecond)
	require.Equal(t, "bakeryctl: bakeryd does not answer on "+socket+", waiting\n", out.String())
	require.NoError(t, ctx.Err())
}

// TestWatch_BusyServer_HasNoLimit: bakeryd itself ends a call whose device hangs.
func TestWatch_BusyServer_HasNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logtest.Log
		asked := 0
		dial := func() (net.Conn, error) {
			asked++
			client, server := net.Pipe()
			go func() {
				_, _ = server.Read(make([]byte, 1024))
				_ = server.Close() // any end of the connection is an answer
			}()
			return client, nil
		}
		ctx, over := context.WithCancel(t.Context())
		go watch(ctx, dial, "s", Busy("s"), cli.Patience{Out: &out, Notice: time.Second, Limit: time.Minute}, func(err error) { t.Error(err) })
		printed := func(after time.Duration) string {
			time.Sleep(after)
			synctest.Wait()
			return out.String()
		}
		require.Empty(t, printed(time.Second-time.Nanosecond))
		require.Equal(t, "bakeryctl: bakeryd answers on s, but has not finished this request, waiting\n", printed(time.Nanosecond))
		require.Equal(t, 1, strings.Count(printed(time.Hour), "\n"))
		require.Equal(t, 1, asked)
		over()
	})
}

// TestAsk_QuickAnswer_CostsNoOtherRequest: and prints nothing.
func TestAsk_QuickAnswer_CostsNoOtherRequest(t *testing.T) {
	t.Parallel()
	var out logtest.Log
	s := calltest.Serve(t, 200, `{"a":7}`)
	var answer struct{ A int }
	ctx := cli.Patience{Out: &out, Notice: time.Hour, Limit: time.Hour}.With(t.Context())
	require.NoError(t, Ask(ctx, s.Socket, "GET", "/v1/x", nil, &answer))
	require.Equal(t, "GET /v1/x", <-s.Asked)
	require.Empty(t, s.Asked)
	require.Empty(t, out.String())
}

// TestWait_Stream_OutlivesTheWait: bakeryctl events reads it for long.
func TestWait_Stream_OutlivesTheWait(t *testing.T) {
	t.Parallel()
	var kept context.Context
	require.NoError(t, Wait(short(t, new(logtest.Log)), silentServer(t), func(ctx context.Context) error {
		kept = ctx
		return nil
	}))
	require.NoError(t, kept.Err())
}

func TestCondition_StoppedProcess_IsNamed(t *testing.T) {
	t.Parallel()
	p := processtest.Start(t, processtest.UntilKilled, nil)
	require.Equal(t, "hangs", condition(p.PID))
	require.NoError(t, syscall.Kill(p.PID, syscall.SIGSTOP))
	require.Eventually(t, func() bool { return condition(p.PID) != "hangs" }, time.Minute, time.Millisecond)
	require.Equal(t, "is stopped (kill -CONT continues it)", condition(p.PID))
}
