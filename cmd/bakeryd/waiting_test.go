package main

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReporter_WaitsLong_LogsEachReasonOnce: and systemd shows it until the host serves.
func TestReporter_WaitsLong_LogsEachReasonOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log, states lockedBuffer
		var reason atomic.Pointer[string]
		set := func(why string) { reason.Store(&why) }
		set("a")
		r := &reporter{log: slog.New(slog.NewTextHandler(&log, nil)), joining: "joining x", served: make(chan term),
			tell: func(state string) { _, _ = states.Write([]byte(state + "\n")) }, waiting: func() string { return *reason.Load() }}
		done, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); r.run(done) }()
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(waitPoll + waitPoll/2)
		require.Empty(t, log.String(), "a short wait is no news")
		pass(10 * waitSilence)
		require.Contains(t, log.String(), `level=WARN msg="not serving locks yet, waiting" reason=a`)
		require.Equal(t, "STATUS=joining x, waiting for a\n", states.String())
		set("b")
		pass(10 * waitSilence)
		require.Contains(t, log.String(), "reason=b")
		lost := make(chan struct{})
		r.served <- term{"READY=1", lost}
		set("")
		pass(10 * waitSilence)
		require.Equal(t, 2, strings.Count(log.String(), "\n"))
		require.Equal(t, "STATUS=joining x, waiting for a\nSTATUS=joining x, waiting for b\nREADY=1\n", states.String())
		set("b")
		pass(10 * waitSilence)
		require.Equal(t, 2, strings.Count(log.String(), "\n"), "it does not look while the host serves")
		close(lost)
		pass(10 * waitSilence)
		require.Equal(t, 3, strings.Count(log.String(), "\n"))
		close(done)
		<-ended
	})
}
