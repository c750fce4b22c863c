package main

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/waiting"
	"github.com/bakeryd/bakeryd/test/logtest"
)

// TestReporter_WaitsLong_LogsEachReasonOnce: and systemd shows it until the host serves.
func TestReporter_WaitsLong_LogsEachReasonOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log, states logtest.Log
		var reason atomic.Pointer[string]
		set := func(why string) { reason.Store(&why) }
		set("a")
		r := &reporter{log: slog.New(slog.NewTextHandler(&log, nil)), joining: "joining x", served: make(chan term),
			tell: func(state string) { _, _ = states.Write([]byte(state + "\n")) }, waiting: func() waiting.Reason { return waiting.Reason{For: *reason.Load()} }}
		done, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); r.run(done) }()
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(waitPoll + waitPoll/2)
		require.Empty(t, log.String(), "a short wait is no news")
		pass(3 * waitSilence)
		require.Contains(t, log.String(), `level=WARN msg="not serving locks yet, waiting" reason=a`)
		require.Equal(t, "STATUS=joining x, waiting for a\n", states.String())
		set("b")
		pass(3 * waitSilence)
		require.Contains(t, log.String(), "reason=b")
		lost := make(chan struct{})
		r.served <- term{"READY=1", lost}
		set("")
		pass(3 * waitSilence)
		require.Equal(t, 2, strings.Count(log.String(), "\n"))
		require.Equal(t, "STATUS=joining x, waiting for a\nSTATUS=joining x, waiting for b\nREADY=1\n", states.String())
		set("b")
		pass(3 * waitSilence)
		require.Equal(t, 2, strings.Count(log.String(), "\n"), "it does not look while the host serves")
		close(lost)
		pass(3 * waitSilence)
		require.Equal(t, 3, strings.Count(log.String(), "\n"))
		close(done)
		<-ended
	})
}

// TestReporter_WaitGoesOn_IsLoggedAgainWithARemedy: less and less often, with the reason of that moment and what remains.
func TestReporter_WaitGoesOn_IsLoggedAgainWithARemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		var reason atomic.Pointer[waiting.Reason]
		reason.Store(&waiting.Reason{For: "a disk", Do: "look at it"})
		r := &reporter{log: slog.New(slog.NewTextHandler(&log, nil)), served: make(chan term), tell: func(string) {}, waiting: func() waiting.Reason { return *reason.Load() }}
		done, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); r.run(done) }()
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(waitRepeat)
		require.NotContains(t, log.String(), "still not serving locks")
		pass(2 * waitPoll)
		require.Contains(t, log.String(), `level=WARN msg="still not serving locks, waiting" reason="a disk" waited=20s remedy="look at it"`)
		reason.Store(&waiting.Reason{For: "a claim", Left: time.Minute})
		pass(waitRepeat / 2)
		reason.Store(&waiting.Reason{For: "a disk", Do: "look at it"})
		pass(waitRepeat / 2)
		reason.Store(&waiting.Reason{For: "a claim", Left: time.Minute})
		pass(5 * waitRepeat)
		require.Equal(t, 1, strings.Count(log.String(), `msg="not serving locks yet, waiting" reason="a disk"`), log.String())
		require.Equal(t, 1, strings.Count(log.String(), `msg="not serving locks yet, waiting" reason="a claim" join_in=1m0s`))
		require.Contains(t, log.String(), `msg="still not serving locks, waiting" reason="a disk" waited=40s remedy="look at it"`)
		require.Contains(t, log.String(), `msg="still not serving locks, waiting" reason="a claim" join_in=1m0s waited=1m20s remedy="none needed: it ends by itself"`)
		require.Equal(t, 5, strings.Count(log.String(), "\n"))
		close(done)
		<-ended
	})
}
