package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// glancing is a host that counts the reports it is asked for. Its disk is never read for the address.
type glancing struct {
	Host
	took    time.Duration
	glances int // one at a time
	err     *api.Error
}

func (g *glancing) Glance() *report.Glance {
	time.Sleep(g.took)
	g.glances++
	return &report.Glance{Error: g.err, Report: &report.Report{Problems: []report.Problem{}}}
}

// looking returns a server of a host. Its handler is called directly, in virtual time.
func looking(host Host, metrics http.Handler) *Server {
	return New(Config{Host: func() (Host, error) { return host, nil }, Log: slog.New(slog.DiscardHandler), Metrics: metrics})
}

func (s *Server) look(ctx context.Context, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.looking.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://localhost"+path, nil))
	return w
}

// TestShared_ManyClientsAsk_OneReportAtATime: 64 clients that ask without pause for a minute get answers
// of at most two reports a second, and at most 200 answers a second.
func TestShared_ManyClientsAsk_OneReportAtATime(t *testing.T) {
	for _, path := range []string{"/v1/status", "/page/status"} {
		synctest.Test(t, func(t *testing.T) {
			host := &glancing{}
			s := looking(host, nil)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			var clients sync.WaitGroup
			var answers [64]int
			for i := range answers {
				clients.Go(func() {
					for ctx.Err() == nil && answers[i] < 20_000 { // without a limit no time passes
						if s.look(ctx, path).Body.Len() > 0 {
							answers[i]++
						}
					}
				})
			}
			clients.Wait()
			sum := 0
			for _, n := range answers {
				require.Positive(t, n, "all clients are served")
				sum += n
			}
			require.LessOrEqual(t, sum, int((time.Minute+askBurst)/askEvery))
			require.Greater(t, sum, int(time.Minute/askEvery), "no slower than the limit")
			require.LessOrEqual(t, host.glances, int(time.Minute/leastShared)+1)
			require.Greater(t, host.glances, 100, "answers are new")
		})
	}
}

// TestShared_SlowReports_TakeATenthOfTheTime: but no answer is older than the limit.
func TestShared_SlowReports_TakeATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &glancing{took: 100 * time.Millisecond}
		s := looking(host, nil)
		for range 1000 { // for 10 s
			s.look(t.Context(), "/v1/status")
			time.Sleep(10 * time.Millisecond)
		}
		require.InDelta(t, 10, host.glances, 2)
		host.took, host.glances = 10*time.Second, 0
		for range 240 { // for 24 s, and the reports
			s.look(t.Context(), "/v1/status")
			time.Sleep(100 * time.Millisecond)
		}
		require.InDelta(t, 12, host.glances, 1, "each is shared for 2 s")
	})
}

// TestShared_ClientGoes_OthersGetTheAnswer: a client that goes ends neither the report nor the others.
func TestShared_ClientGoes_OthersGetTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &glancing{took: time.Second}
		s := looking(host, nil)
		ctx, goes := context.WithCancel(t.Context())
		go s.look(ctx, "/v1/status")
		synctest.Wait()
		goes()
		require.Equal(t, http.StatusOK, s.look(t.Context(), "/v1/status").Code)
		require.Equal(t, 1, host.glances)
	})
}

// TestShared_Refusals_CountForEachClient, and the address never answers with an old report in place of an error.
func TestShared_Refusals_CountForEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := looking(&glancing{err: &api.Error{Code: api.CodeDevice, Message: "IO hangs"}}, nil)
		for range 3 {
			w := s.look(t.Context(), "/v1/status")
			require.Equal(t, (&api.Error{Code: api.CodeDevice}).Status(), w.Code)
			require.Contains(t, w.Body.String(), "IO hangs")
		}
		require.EqualValues(t, 3, s.cfg.Tally.Refused.All()[api.CodeDevice])
	})
}

// TestShared_MetricsPanic_NextRequestIsServed: a request that waits is not left behind.
func TestShared_MetricsPanic_NextRequestIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := looking(&glancing{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls == 1 {
				panic("boom")
			}
			fmt.Fprint(w, "number ", calls, r.Header, r.URL.Query())
		}))
		require.Panics(t, func() { s.look(t.Context(), "/metrics") })
		require.Equal(t, "number 2 map[] map[]", s.look(t.Context(), "/metrics").Body.String())
		require.Equal(t, "number 2 map[] map[]", s.look(t.Context(), "/metrics?x=y").Body.String(), "the same for all")
	})
}

// TestPace_ManyReaders_WorkATenthOfTheTime: clients that read the journal are charged together.
func TestPace_ManyReaders_WorkATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		began := time.Now()
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				for range 50 {
					time.Sleep(10 * time.Millisecond) // a batch
					p.charge(t.Context(), (workShare-1)*10*time.Millisecond, readBurst)
				}
			})
		}
		clients.Wait()
		const read = 20 * 50 * 10 * time.Millisecond
		require.GreaterOrEqual(t, time.Since(began), (workShare-1)*read-readBurst)
		require.LessOrEqual(t, time.Since(began), workShare*read)
	})
}

// TestEvents_ByAddress_ReadingIsCharged: in each of the ways to ask for events.
func TestEvents_ByAddress_ReadingIsCharged(t *testing.T) {
	journal := events.New(clock.Boottime, slog.New(slog.DiscardHandler))
	defer journal.Close()
	journal.Keep(filepath.Join(t.TempDir(), "x.events"), events.Self{Host: 1, Name: "db1", Incarnation: 7})
	journal.Add(events.Event{Kind: events.Gap})
	for _, query := range []string{"", "?limit=5", "?follow=1"} {
		s := New(Config{Log: slog.New(slog.DiscardHandler), Events: journal})
		ctx, cancel := context.WithCancel(t.Context())
		go s.look(ctx, "/v1/events"+query)
		require.Eventually(t, func() bool {
			s.reading.mu.Lock()
			defer s.reading.mu.Unlock()
			return !s.reading.free.IsZero()
		}, time.Minute, time.Millisecond, query)
		cancel()
	}
}
