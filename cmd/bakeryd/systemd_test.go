package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// manager stands for systemd: each message that bakeryd sends arrives on the channel.
func manager(t *testing.T, watchdog string) chan string {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // short: socket paths are limited
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", watchdog)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	told := make(chan string, 1000)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			told <- string(buf[:n])
		}
	}()
	return told
}

// until returns all messages up to one that contains text.
func until(t *testing.T, told chan string, text string) (all []string) {
	t.Helper()
	for end := time.After(30 * time.Second); ; {
		select {
		case n := <-told:
			if all = append(all, n); strings.Contains(n, text) {
				return all
			}
		case <-end:
			t.Fatalf("systemd did not get %s, but %q", text, all)
		}
	}
}

func TestSystemdIsTold(t *testing.T) {
	told := manager(t, "200000")
	ctx, cancel := context.WithCancel(t.Context())
	r := start(t, ctx)
	first := until(t, told, "READY=1")
	require.Equal(t, "STATUS=joining the lockspace on "+r.device, first[0])
	require.Equal(t, "READY=1\nSTATUS=host 1 on "+r.device, first[len(first)-1])
	for range 5 {
		until(t, told, "WATCHDOG=1")
	}
	conn := r.hold("x")
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGHUP)) // as ExecReload= does
	until(t, told, "WATCHDOG=1")
	cancel()
	require.Equal(t, exitOK, r.exit(), "log: %s", &r.log)
	until(t, told, "STOPPING=1")
	require.NoError(t, conn.Close())
}

func TestNoWatchdogOfSystemd(t *testing.T) {
	told := manager(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	r := start(t, ctx)
	until(t, told, "READY=1")
	cancel()
	require.Equal(t, exitOK, r.exit(), "log: %s", &r.log)
	for _, n := range until(t, told, "STOPPING=1") {
		require.NotContains(t, n, "WATCHDOG")
	}
}

func TestBadWatchdogOfSystemd(t *testing.T) {
	manager(t, "soon")
	r := start(t, t.Context())
	require.Equal(t, exitUsage, r.exit())
	require.Contains(t, r.log.String(), "WATCHDOG_USEC is set by systemd")
}

func TestSystemdAfterTheEnd_GetsNoBeat(t *testing.T) {
	told := manager(t, "200000")
	s := &systemd{log: slog.New(slog.DiscardHandler)}
	s.beat()
	until(t, told, "WATCHDOG=1")
	s.end()
	s.beat()
	s.beats.Wait()
	s.tell("STOPPING=1")
	require.Equal(t, []string{"STOPPING=1"}, until(t, told, "STOPPING=1"))
}
